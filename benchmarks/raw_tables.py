"""Three hospital tables in raw units, as people have them: what preparing features is measured and shown on.

    ward      one population. Income has a heavy tail, a lab value spans decades, stays are mostly zero, a column is constant.
    shift     six hospitals whose patients differ in mean and spread of age, income and lab value. One rule holds everywhere.
    units     five hospitals with one population that write age, income, lab value and weight in other units each.

The class of a patient depends on the true values by one rule with noise; edges join patients, mostly of one class and of one
hospital.
"""

from __future__ import annotations

import numpy as np

from fedquilt.graphs.graph import Graph

COLUMNS = ("age", "income", "lab", "stays", "weight", "smoker", "country")
SHARES = (0.62, 0.26, 0.12)  # of the classes
CLASSES = ("home", "observed", "admitted")
TABLES = ("ward", "shift", "units")
DEGREE = 3  # edges a node, on average, before those that meet themselves are dropped
SAME_CLASS, SAME_HOSPITAL = 0.7, 0.95  # the chance of an edge to be inside
# By hospital of `shift`: mean age, factor of its spread, factors of income and lab value.
POPULATIONS = (
    (9, 0.3, 1.4, 0.5),
    (34, 0.6, 0.7, 0.6),
    (48, 1.0, 1.0, 1.0),
    (58, 0.8, 3.0, 0.9),
    (67, 0.8, 0.9, 2.0),
    (81, 0.5, 0.6, 4.0),
)
# By hospital of `units`: of age (years, months, days), income (thousands, euros, cents, yen), lab (mg/L, mg/dL, ug/L) and
# weight (kg, pounds, g).
UNITS = ((1, 1, 1, 1), (12, 1e-3, 0.1, 2.205), (365.25, 160, 1000, 1), (1, 100, 1, 1000), (12, 1, 0.1, 2.205))


def raw_table(name: str, seed: int = 0, nodes: int = 1500) -> tuple[Graph, np.ndarray]:
    """A table as a graph with dense raw features, and the hospital of each node: [N] int64."""
    stream = np.random.default_rng([TABLES.index(name), seed])
    hospitals = {"ward": 3, "shift": len(POPULATIONS), "units": len(UNITS)}[name]
    hospital = np.sort(stream.integers(hospitals, size=nodes))
    mean, spread, rich, ill = (np.ones((nodes, 4)) * (52, 1, 1, 1)).T
    if name == "shift":
        mean, spread, rich, ill = np.array(POPULATIONS, dtype=float)[hospital].T
    age = np.clip(mean + 17 * spread * stream.standard_normal(nodes), 0, 105)
    income = rich * 24_000 * np.exp(0.6 * stream.standard_normal(nodes)) * (1 + stream.pareto(1.3, nodes) / 4)
    lab = ill * 4 * np.exp(1.1 * stream.standard_normal(nodes))
    stays = np.where(stream.random(nodes) < 0.85, 0, 1 + stream.poisson(2, nodes)).astype(float)
    weight = 74 + 13 * stream.standard_normal(nodes)
    smoker = (stream.random(nodes) < 0.3).astype(float)
    # The rule: on true values, the same for all hospitals.
    risk = (
        1.3 * (age - 52) / 17
        + 1.0 * np.log(lab / 4)
        - 0.7 * np.log(income / 24_000)
        + 0.9 * smoker
        + 0.5 * stays
        + 0.5 * stream.standard_normal(nodes)
    )
    y = np.searchsorted(np.quantile(risk, np.cumsum(SHARES[:-1])), risk)
    x = np.stack([age, income, lab, stays, weight, smoker, np.full(nodes, 276.0)], axis=1)
    if name == "units":
        x[:, [0, 1, 2, 4]] *= np.array(UNITS)[hospital]
    graph = Graph.from_arrays(
        name,
        _edges(stream, y, hospital),
        x.astype(np.float32),
        y,
        class_names=CLASSES,
        feature_names=COLUMNS,
        ids=np.array([f"patient-{number}" for number in range(nodes)]),
    )
    return graph, hospital


def _edges(stream: np.random.Generator, y: np.ndarray, hospital: np.ndarray) -> np.ndarray:
    """[2, E]: each end is drawn anew among the nodes of the same class, hospital, both or neither."""
    first = stream.integers(y.size, size=DEGREE * y.size)
    same_class, same_hospital = stream.random(first.size) < SAME_CLASS, stream.random(first.size) < SAME_HOSPITAL
    second = np.empty_like(first)
    for place, node in enumerate(first):
        fits = (y == y[node]) | (not same_class[place])
        fits &= (hospital == hospital[node]) | (not same_hospital[place])
        second[place] = stream.choice(np.flatnonzero(fits))
    return np.stack([first, second])
