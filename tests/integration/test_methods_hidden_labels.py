"""Labels of validation and test nodes reach nobody: no weight, no upload and no download depends on them.

A method that says what it computes from validation labels (`Method.uses_validation`) is held to the labels of test nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedquilt.methods.base import methods
from fedquilt.training.plan import Plan
from support.federations import Wiretap, assert_same, make_method, make_task, make_training, ragged_clients, relabelled

VARIANTS = [(name, {}) for name in methods()] + [
    ("fedpub", {"similarity": "label"}),
    ("fedpub", {"graph": "feature", "threshold": 0.5}),
    ("fedpub", {"matching": False}),
    ("fediih", {"classify": "both", "divergence": "mean", "through": True}),
    ("fediih", {"hierarchy": False, "layers": 5, "hidden": 64}),
    ("fediih", {"variational": False, "wide": True}),
    ("fediih", {"disentangle": False, "layers": 1}),
    ("fedssa", {"basis": "monomial", "semantic": False}),
    ("fedssa", {"basis": "chebyshev", "structural": False}),
    ("fedssa", {"basis": "bernstein", "node_clusters": 20, "structure_clusters": 20}),
    ("fedssa", {"semantic": False, "structural": False}),
    ("fedssa", {"components": 3}),
    ("fedssa", {"elbo": 0.1}),
    ("fedssa", {"elbo": 0.0}),
    ("fedssa", {"encoder": "separate"}),
    ("fedssa", {"classify": "mean"}),
    ("fedsheafhn", {"refresh": 1, "warmup": 3, "diffusion": "gat"}),
    ("fedsheafhn", {"client_vector": "one-hot", "attention": False, "fresh_moments": False}),
    ("fedhero", {"learner": "attention", "channels": 1, "k": 4}),
    ("fedhero", {"learner": "gat", "own_dropout": 0.5}),
    ("fedhero", {"learner": "glcn", "share": "gcn", "k": 4}),
    ("fedhero", {"learner": "gaug", "share": "all", "k": 4}),
    ("fedhero", {"learner": "cosine", "latent": "bernoulli", "k": 4}),
    ("fedhero", {"share": "none", "share_projection": False}),
]


@pytest.mark.parametrize("participation", [pytest.param(1.0, marks=pytest.mark.long), 0.6])
@pytest.mark.parametrize(
    ("name", "settings"),
    [pytest.param(n, s, id=f"{n}{s or ''}") for n, s in VARIANTS],
)
def test_hidden_labels_change_nothing(name: str, settings: dict[str, Any], participation: float) -> None:
    found = []
    for clients in (ragged_clients(), relabelled(ragged_clients(), name)):
        method = make_method(name, clients, make_task(clients, epochs=2), **settings)
        training = make_training(method, clients, Plan(3, participation))
        tap = Wiretap(training.engine)
        training.run()
        found.append((tap, training))
    (one, first), (two, second) = found
    for mine, other in zip(one.ups + one.downs, two.ups + two.downs, strict=True):
        assert_same(mine, other)
    assert_same(first.engine.personal(), second.engine.personal())
    state, other = first.engine.state(), second.engine.state()
    read = ("figures.val", "figures.val_loss") if method.uses_validation else ()
    for key in {"figures.val", "figures.test", "figures.val_loss"}.difference(read):
        assert not np.array_equal(state.pop(key), other.pop(key)) or name == "majority"
    assert_same(state, other)
