"""Describe a graph before training on it: its size, homophily, clustering, split, and what training will do about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedquilt.graphs.column_figures import ColumnFigures, column_figures
from fedquilt.graphs.copies import CopyKind, CopyReport, describe_copies
from fedquilt.graphs.edge_weights import weights_in_words
from fedquilt.graphs.findings import Finding, findings_of
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import numbers_in_words


@dataclass(frozen=True)
class GraphReport:
    """A description of one graph.

    Attributes:
        name: the graph's name.
        nodes, edges, features, classes: its size; each undirected edge counted once.
        edge_weights: the range of the edges' weights in words, or "none".
        homophily: among the edges between labelled nodes, the share that join two nodes of one class; NaN without such edges.
        clustering: the average local clustering coefficient; a node of degree 0 or 1 counts as 0.
        components: connected components.
        isolated: nodes without an edge.
        unlabelled: nodes without a label.
        class_counts: [C] labelled nodes in each class; with one class of all where labels are numbers.
        numbers: the range of labels that are numbers, in words; empty where they are classes.
        split: the sizes of the given split's train, val and test parts, or None.
        copies: how much nodes with the same neighbours give away of each other's classes, and nodes with the same features.
        class_names, feature_names: the names of the classes and of the features, or None.
        columns: figures of the features: range, deviation, skew.
        findings: what is worth knowing, and what training does about each.
    """

    name: str
    nodes: int
    edges: int
    edge_weights: str
    features: int
    classes: int
    homophily: float
    clustering: float
    components: int
    isolated: int
    unlabelled: int
    class_counts: tuple[int, ...]
    numbers: str
    split: tuple[int, int, int] | None
    copies: tuple[CopyReport, ...]
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None
    columns: ColumnFigures
    findings: tuple[Finding, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each property that is allowed but may surprise."""
        return tuple(finding.sentence for finding in self.findings if finding.warning)

    def rows(self) -> list[tuple[str, str]]:
        """(name, value) pairs in the order in which to print them, without the warnings."""
        given = "none" if self.split is None else "{:,} train, {:,} val, {:,} test".format(*self.split)
        names = [""] * self.classes if self.class_names is None else [f"{name} " for name in self.class_names]
        pairs = zip(names[:20], self.class_counts[:20], strict=True)
        shown = ", ".join(f"{name}{count:,}" for name, count in pairs)
        labels = [
            ("classes", f"{self.classes:,}"),
            ("nodes in each class", shown + (", ..." if len(self.class_counts) > 20 else "")),
        ]
        homophily = [("edge homophily", "-" if np.isnan(self.homophily) else f"{self.homophily:.3f}")]
        if self.numbers:
            labels, homophily = [("labels", self.numbers)], []
        return [
            ("nodes", f"{self.nodes:,}"),
            ("edges", f"{self.edges:,}"),
            ("edge weights", self.edge_weights),
            ("features", f"{self.features:,}"),
            *labels,
            ("unlabelled nodes", f"{self.unlabelled:,}"),
            *homophily,
            ("average clustering", f"{self.clustering:.3f}"),
            ("connected components", f"{self.components:,}"),
            ("isolated nodes", f"{self.isolated:,}"),
            ("given split", given),
            *((f"nodes with another's {copies.kind}", _copies_in_words(copies)) for copies in self.copies),
        ]


def describe_graph(graph: Graph, own: bool = True) -> GraphReport:
    """Describe a valid graph; `own`: it is a user's own, whose features a run brings to one scale."""
    from scipy.sparse.csgraph import connected_components

    components, _ = connected_components(graph.adjacency(), directed=False)
    degree = np.bincount(graph.edges.ravel(), minlength=graph.nodes)
    masks, figures = graph.masks, column_figures(graph.x)
    counts = np.bincount(graph.y[graph.y >= 0], minlength=graph.classes)
    kinds: tuple[CopyKind, ...] = ("neighbours", "features") if graph.numbers is None else ()
    copies = tuple(describe_copies(graph, kind) for kind in kinds)
    return GraphReport(
        name=graph.name,
        nodes=graph.nodes,
        edges=graph.edges.shape[1],
        edge_weights=weights_in_words(graph.edge_weights),
        features=graph.features,
        classes=graph.classes,
        homophily=_homophily(graph) if graph.numbers is None else float("nan"),
        clustering=_clustering(graph),
        components=int(components),
        isolated=int((degree == 0).sum()),
        unlabelled=int((graph.y < 0).sum()),
        class_counts=tuple(int(count) for count in counts),
        numbers="" if graph.numbers is None else numbers_in_words(graph.numbers),
        split=None if masks is None else (int(masks["train"].sum()), int(masks["val"].sum()), int(masks["test"].sum())),
        copies=copies,
        class_names=graph.class_names,
        feature_names=graph.feature_names,
        columns=figures,
        findings=(*findings_of(graph, own, figures), *(_copy_finding(graph, c) for c in copies if c.gives_away)),
    )


def _homophily(graph: Graph) -> float:
    u, v = graph.y[graph.edges]
    both = (u >= 0) & (v >= 0)
    return float((u == v)[both].mean()) if both.any() else float("nan")


def _clustering(graph: Graph) -> float:
    import igraph

    # igraph counts triangles in C: a second at half a million edges. Squaring the adjacency matrix would fill memory.
    network = igraph.Graph(n=graph.nodes, edges=graph.edges.T)
    return float(network.transitivity_avglocal_undirected(mode="zero"))


def _copies_in_words(copies: CopyReport) -> str:
    if not copies.share:
        return "none"
    return f"{copies.share:.1%}, same label {copies.agreement:.1%} (other nodes {copies.reference:.1%})"


def _copy_finding(graph: Graph, copies: CopyReport) -> Finding:
    kind = copies.kind
    other = "nodes two steps away" if kind == "neighbours" else "random ones of them"
    done = (
        "a run keeps copies of this graph in one part of the split unless --keep-copies never is given"
        if graph.copies is not None
        else f"keep them in one part of the split with --keep-copies {kind} (keep_copies: {kind} in a site.yaml)"
    )
    found = (
        f"{copies.share:.1%} of the labelled nodes have exactly the same {kind} as another one, which has the same label in "
        f"{copies.agreement:.0%} of cases ({other}: {copies.reference:.0%})"
    )
    return Finding("copies", found, f"a test node with a copy in training is no test; {done}")
