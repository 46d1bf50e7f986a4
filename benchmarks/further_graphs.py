"""`python -m benchmarks.further_graphs FOLDER`: nine graphs of kinds that the papers' are not, as npz files.

Tables whose rows are joined to their nearest neighbours (scikit-learn's digits and breast cancer), dense features (Cora's and
Actor's, projected), a few hundred nodes (parts of Actor, Chameleon and CiteSeer), a part of the credit table, and words in
sentences, which are made up. FEDQUILT_DATA has the graphs that they are made of. Then, in that folder,

    fedquilt study run .../benchmarks/further_graphs.yaml

trains fourteen methods on them. `digits`, `cancer` and `citeseer-small` in five parts are what Quilt's view `private` was
developed on; on the others nothing was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedquilt.datasets.load import data_folder

Named = tuple[np.ndarray, sp.csr_matrix, np.ndarray]  # edges [2, E], features [N, F], labels [N]
CLASSES, WORDS, WIDTH = 12, 5000, 100  # of the sentences


def undirected(links: sp.spmatrix) -> np.ndarray:
    """The pairs of rows with an entry, each once: [2, E]."""
    a = sp.csr_matrix(links)
    a = (a + a.T) > 0
    a.setdiag(False)
    a.eliminate_zeros()
    return np.stack(sp.triu(a).nonzero()).astype(np.int32)


def known(name: str) -> Named:
    """A graph of the data folder, with raw features."""
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as file:
        if "x" in file:
            return file["edge_index"], sp.csr_matrix(file["x"]), file["y"]
        parts = file["x_data"].astype(np.float32), file["x_indices"].astype(np.int64), file["x_indptr"]
        return file["edge_index"], sp.csr_matrix(parts, shape=tuple(file["x_shape"])), file["y"]


def matrix(edges: np.ndarray, nodes: int) -> sp.csr_matrix:
    """The adjacency [N, N]."""
    a = sp.coo_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(nodes, nodes))
    return (a + a.T).tocsr()


def dense(name: str, width: int, stream: np.random.Generator) -> Named:
    """A graph with its features projected to their first singular vectors, and moved away from zero."""
    from sklearn.decomposition import TruncatedSVD

    edges, x, y = known(name)
    projected = TruncatedSVD(width, random_state=0).fit_transform(x.astype(np.float64))
    projected /= projected.std()
    return edges, sp.csr_matrix(projected + 0.5 * stream.standard_normal(width)), y


def part_of(name: str, nodes: int, seed: int) -> Named:
    """So many nodes of a graph, found by going from a node to four of its neighbours, and on; features that occur there."""
    edges, x, y = known(name)
    a, stream = matrix(edges, len(y)), np.random.default_rng(seed)
    found = [int(stream.integers(len(y)))]
    place = 0
    while len(found) < nodes:
        neighbours = a.indices[a.indptr[found[place]] : a.indptr[found[place] + 1]]
        stream.shuffle(neighbours)
        found += [int(each) for each in neighbours[:4] if int(each) not in set(found)]
        place += 1
        if place >= len(found):
            found.append(int(stream.integers(len(y))))
    chosen = np.array(found[:nodes])
    some = x[chosen].toarray()
    return undirected(a[chosen][:, chosen]), sp.csr_matrix(some[:, some.any(0)]), y[chosen]


def near_one_node(name: str, nodes: int) -> Named:
    """So many nodes of a graph's largest component that are nearest to one of them."""
    edges, x, y = known(name)
    a = matrix(edges, len(y))
    component = sp.csgraph.connected_components(a)[1]
    first = np.flatnonzero(component == np.bincount(component).argmax())[0]
    chosen = sp.csgraph.breadth_first_order(a, first, return_predecessors=False)[:nodes]
    return undirected(a[chosen][:, chosen]), x[chosen], y[chosen]


def sentences(stream: np.random.Generator) -> Named:
    """Words in a row with some links farther on. A word's class follows from the one before; what it looks like says its class
    in less than half of all cases."""
    follows = stream.dirichlet(np.full(CLASSES, 0.15), size=CLASSES)
    y = np.zeros(WORDS, int)
    for i in range(1, WORDS):
        y[i] = stream.choice(CLASSES, p=follows[y[i - 1]])
    clear = [stream.standard_normal((60, WIDTH)) for _ in range(CLASSES)]
    ambiguous = stream.standard_normal((40, WIDTH))

    def looks(word_class: int) -> np.ndarray:
        if stream.random() < 0.45:
            word: np.ndarray = clear[word_class][min(59, int(stream.zipf(1.5)) - 1)]
            return word
        other: np.ndarray = ambiguous[int(stream.integers(40))]
        return other

    x = np.stack([looks(c) for c in y]) + 0.3 * stream.standard_normal((WORDS, WIDTH))
    farther = stream.integers(2, 6, WORDS // 3)
    start = stream.choice(WORDS - 6, WORDS // 3, replace=False)
    ends = np.r_[np.arange(WORDS - 1), start], np.r_[np.arange(1, WORDS), start + farther]
    links = sp.coo_matrix((np.ones(ends[0].size), ends), shape=(WORDS, WORDS))
    return undirected(links), sp.csr_matrix(x + 0.3), y


def every_graph() -> dict[str, Named]:
    """All of them by name."""
    from sklearn.datasets import load_breast_cancer, load_digits
    from sklearn.neighbors import kneighbors_graph

    stream = np.random.default_rng(0)
    digits, classes = load_digits(return_X_y=True)
    cells, kinds = load_breast_cancer(return_X_y=True)
    scaled = (cells - cells.mean(0)) / cells.std(0)
    return {
        "digits": (undirected(kneighbors_graph(digits, 6)), sp.csr_matrix(digits), classes),
        "cancer": (undirected(kneighbors_graph(scaled[:, :6], 5)), sp.csr_matrix(cells), kinds),
        "cora-dense": dense("cora", 128, stream),
        "actor-dense": dense("actor", 128, stream),
        "actor-small": part_of("actor", 300, 1),
        "chameleon-small": part_of("chameleon", 250, 1),
        "citeseer-small": part_of("citeseer", 400, 2),
        "credit-small": near_one_node("credit-137k", 6000),
        "sentences": sentences(stream),
    }


def main() -> None:
    """Write them, and say what they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write NAME.npz")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, (edges, x, y) in every_graph().items():
        alike = (y[edges[0]] == y[edges[1]]).mean()
        print(f"{name}: {len(y):,} nodes, {edges.shape[1]:,} edges, {x.shape[1]} features, homophily {alike:.2f}")
        arrays = {"edge_index": edges.astype(np.int32), "x": x.toarray().astype(np.float32), "y": y.astype(np.int32)}
        np.savez_compressed(folder / f"{name}.npz", name=np.array(name), **arrays)


if __name__ == "__main__":
    main()
