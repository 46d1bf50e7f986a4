"""Why a training diverged."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.raw_tables import raw_table

import fedquilt
from fedquilt.errors import DivergedError
from fedquilt.runs.divergence import explained, largest_feature
from support.federations import ragged_clients
from support.graphs import tiny


def test_fedssa_on_raw_features_names_the_feature_and_the_client() -> None:
    graph, _ = raw_table("ward", nodes=200)
    with pytest.raises(
        DivergedError, match=r"the feature 'income' of client \d goes up to .*--prepare standard"
    ) as caught:
        fedquilt.run("fedssa", graph, clients=3, rounds=3, prepare="none", device="cpu")
    assert "learning rate" in str(caught.value)
    assert fedquilt.run("fedssa", graph, clients=3, rounds=3, device="cpu").result["test_mean"] > 0


def test_the_clients_that_diverged_are_looked_at() -> None:
    clients = ragged_clients((9, 9))
    wide = [
        replace(c, graph=replace(c.graph, x=c.graph.x * scale)) for c, scale in zip(clients, (1e6, 1e4), strict=True)
    ]
    assert "the feature number" in str(explained(DivergedError("it is", [1]), wide))
    assert "of client 1 goes up to" in str(explained(DivergedError("it is", [1]), wide))
    assert "of client 0 goes up to" in str(explained(DivergedError("it is"), wide))
    error = DivergedError("it is", [0])
    assert explained(error, clients) is error  # they are of one scale, so that it is the learning rate


def test_the_error_comes_whole_from_another_process() -> None:
    back = pickle.loads(pickle.dumps(DivergedError("it is", [3], "do something else")))
    assert (str(back), back.clients) == ("Training diverged: it is; do something else.", (3,))


def test_the_largest_value_has_a_column() -> None:
    x = np.array([[1, -7], [2, 3]], dtype=np.float32)
    for features in (x, sp.csr_matrix(x)):
        assert largest_feature(replace(tiny(), x=features, y=np.zeros(2, dtype=np.int64))) == (7.0, 1)
