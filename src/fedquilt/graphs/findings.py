"""What may surprise in a graph, and what training will do about it: scale, constant columns, outliers, classes, edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedquilt.common.printable import printable, shortened
from fedquilt.graphs.column_figures import ColumnFigures, column_figures
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import numbers_in_words
from fedquilt.graphs.preparation import suggested_kind

_MOST_NAMED = 4  # columns or classes in one sentence
_UNEQUAL_SCALES = 10  # times that one column's deviation is another's
_FAR = 10  # deviations of the middle nine tenths that are an outlier
_SKEWED = 3.0
_IMBALANCED = 3  # times that the largest class is the smallest


@dataclass(frozen=True)
class Finding:
    """One property of a graph.

    Attributes:
        topic: a word or two, such as "scale".
        found: what is so, without a full stop.
        done: what training does about it, or what to do, without a full stop.
        warning: whether it may surprise; otherwise it is for information.
    """

    topic: str
    found: str
    done: str
    warning: bool = True

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        return f"{self.found}: {self.done}."


def findings_of(graph: Graph, own: bool = True, figures: ColumnFigures | None = None) -> list[Finding]:
    """What is worth knowing about a graph's features, classes and edges.

    Args:
        graph: the graph.
        own: whether it is a user's own, whose features a run brings to one scale; a named dataset's are used as published.
        figures: of its features, where they are known already.
    """
    degree = np.bincount(graph.edges.ravel(), minlength=graph.nodes)
    return [
        *_features(graph, own, figures or column_figures(graph.x)),
        *(_classes(graph) if graph.numbers is None else _numbers(graph)),
        *_unlabelled(graph),
        *(_homophily(graph) if graph.numbers is None else []),
        *_edges(graph, degree, own),
    ]


# --- features


def _features(graph: Graph, own: bool, figures: ColumnFigures) -> list[Finding]:
    plain = ~figures.constant & ~figures.binary
    found: list[Finding] = []
    if plain.any():
        found += _scale(graph, figures, plain, own)
    if (same := np.flatnonzero(figures.constant)).size:
        zeros = int((figures.high[same] == 0).sum())
        what = "are 0" if zeros == same.size else "have one value"
        what = f"{same.size:,} of {graph.features:,} features {what} for every node ({_names(graph, same)})"
        done = "they tell no nodes apart and can be dropped; --prepare standard makes them 0"
        found.append(Finding("constant columns", what, done))
    return found


def _scale(graph: Graph, figures: ColumnFigures, plain: np.ndarray, own: bool) -> list[Finding]:
    places = np.flatnonzero(plain)
    size = np.maximum(figures.deviation, (figures.high - figures.low) / 1000)[places]
    least, most = places[size.argmin()], places[size.argmax()]
    unequal = places.size > 1 and size.max() > _UNEQUAL_SCALES * size.min()
    off = figures.low[places].min() < -100 or figures.high[places].max() > 100
    spans = f"values lie between {figures.low[places].min():.4g} and {figures.high[places].max():.4g}"
    if unequal:
        spans = " and ".join(
            f"{_name(graph, at)} has values from {figures.low[at]:.4g} to {figures.high[at]:.4g}"
            for at in (most, least)
        )
    counts = suggested_kind(graph.x) == "rows"
    kept = "; columns of 0 and 1 stay as they are" if figures.binary.any() else ""
    if not own:
        done = "a named dataset is used as its protocol says (--prepare standard changes that)"
    elif counts:
        done = "a run divides each node's counts by their sum (--prepare rows, the default here)"
    else:
        done = (
            f"a run standardises each numeric column, robust to outliers (--prepare standard, the default here){kept}"
        )
    found = [Finding("scale", spans, done, warning=own and bool(unequal or off))]
    skewed = places[(figures.far[places] > _FAR) | (np.abs(figures.skew[places]) > _SKEWED)]
    if skewed.size and own and not counts:
        worst = skewed[np.argmax(figures.far[skewed])]
        what = f"{skewed.size:,} column{'s are' if skewed.size > 1 else ' is'} skewed or has outliers ({_names(graph, skewed)}"
        what += f"; the farthest, in {_name(graph, worst)}, is {figures.far[worst]:.0f} deviations away)"
        done = (
            "--prepare standard takes its statistics from the middle nine tenths and bends what is beyond 3 deviations; take "
            "the logarithm yourself where that fits the measurement"
        )
        found.append(Finding("outliers", what, done))
    return found


# --- labels


def _classes(graph: Graph) -> list[Finding]:
    counts = np.bincount(graph.y[graph.y >= 0], minlength=graph.classes)
    found: list[Finding] = []
    if (few := np.flatnonzero(counts < 3)).size:
        named = ", ".join(class_name(graph, int(number)) for number in few[:10]) + (", ..." if few.size > 10 else "")
        what = f"Fewer than 3 nodes in class {named}"
        found.append(Finding("small classes", what, "such a class cannot be in training, validation and test"))
    there = counts[counts > 0]
    if there.size > 1 and there.max() >= _IMBALANCED * there.min():
        largest, smallest = int(counts.argmax()), int(np.flatnonzero(counts == there.min())[0])
        share = counts[largest] / counts.sum()
        what = (
            f"{share:.1%} of the labelled nodes are in class {class_name(graph, largest)} ({counts[largest]:,}) and "
            f"{counts[smallest]:,} in class {class_name(graph, smallest)}"
        )
        done = (
            f"training counts every node alike, so a model that always answers {class_name(graph, largest)} has accuracy "
            f"{100 * share:.2f}; see --metric balanced-accuracy and --class-weights balanced"
        )
        found.append(Finding("imbalance", what, done))
    return found


def _numbers(graph: Graph) -> list[Finding]:
    assert graph.numbers is not None
    done = (
        "--task node-regression learns them; it standardises them by each client's own training labels and predicts in their "
        "own units"
    )
    return [Finding("labels", f"Labels are {numbers_in_words(graph.numbers)}", done, warning=False)]


def _unlabelled(graph: Graph) -> list[Finding]:
    found: list[Finding] = []
    unlabelled = int((graph.y < 0).sum())
    if unlabelled > 0.9 * graph.nodes:
        what = "More than nine in ten nodes are unlabelled"
        found.append(Finding("unlabelled", what, "a client may get no labelled node at all"))
    elif unlabelled:
        what = f"{unlabelled:,} of {graph.nodes:,} nodes have no label"
        done = "they count as neighbours, but neither in training's loss nor in a metric"
        found.append(Finding("unlabelled", what, done, warning=False))
    return found


# --- edges


def _homophily(graph: Graph) -> list[Finding]:
    u, v = graph.y[graph.edges]
    both = (u >= 0) & (v >= 0)
    if not both.any():
        return []
    ends = np.bincount(np.concatenate([u[both], v[both]]), minlength=max(graph.classes, 1))
    chance = float(((ends / ends.sum()) ** 2).sum())
    share = float((u == v)[both].mean())
    adjusted = (share - chance) / (1 - chance) if chance < 1 else 1.0
    what = f"{share:.1%} of the edges join nodes of one class, where chance would join {chance:.1%}"
    if adjusted > 0.3:
        return [Finding("homophily", what, "averaging over neighbours, as a GCN does, helps", warning=False)]
    done = (
        "averaging over neighbours, as a GCN does, may hurt; compare a method with filters (quilt, fedssa) with local "
        "training before you trust either"
    )
    return [Finding("homophily", what, done)]


def _edges(graph: Graph, degree: np.ndarray, own: bool) -> list[Finding]:
    from scipy.sparse.csgraph import connected_components

    if not graph.edges.size:
        what = f"There are no edges, so that {graph.nodes:,} of {graph.nodes:,} nodes have no edge"
        return [Finding("edges", what, "a graph network sees nothing but each node's own features")]
    found: list[Finding] = []
    if isolated := int((degree == 0).sum()):
        what = f"{isolated:,} of {graph.nodes:,} nodes have no edge"
        found.append(Finding("isolated nodes", what, "a graph network learns from their features only"))
    count, component = connected_components(graph.adjacency(), directed=False)
    if count > 1:
        largest = int(np.bincount(component).max())
        what = f"The graph has {count:,} parts that no edge joins; the largest has {largest / graph.nodes:.1%} of the nodes"
        done = "all parts are kept, and a partition may put several into one client"
        done = done if own else "those are kept that the dataset's protocol says"
        found.append(Finding("components", what, done, warning=False))
    return found


# --- names


def class_name(graph: Graph, number: int) -> str:
    """A class as people call it: its name in quotes, or its number."""
    return str(number) if graph.class_names is None else f"'{_brief(graph.class_names[number])}'"


def _name(graph: Graph, column: int) -> str:
    return f"column {column + 1}" if graph.feature_names is None else f"'{_brief(graph.feature_names[column])}'"


def _names(graph: Graph, columns: Sequence[int] | np.ndarray) -> str:
    named = ", ".join(_name(graph, int(column)) for column in columns[:_MOST_NAMED])
    return named + (", ..." if len(columns) > _MOST_NAMED else "")


def _brief(text: str) -> str:
    return printable(shortened(text, 60))
