"""ieee-fraud from tiny files laid out as Kaggle's are, and one sentence for each fault."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import fedquilt
from fedquilt.datasets.ieee_fraud import FEATURES, IDENTITIES, TRANSACTIONS, read_ieee_fraud
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.federated import FederatedGraph

CODES = ("card1", "card4", "P_emaildomain", "M1")  # columns that are no numbers, or codes
HEADER = ("TransactionID", "isFraud", "TransactionDT", *FEATURES[:1], "ProductCD", *CODES, *FEATURES[1:])
PRODUCTS = "WCCHCHC"  # W has no identities


def write(folder: Path, products: str = PRODUCTS) -> None:
    """Transactions of these products; V339 is not known of the third."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / TRANSACTIONS, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for number, product in enumerate(products):
            features = dict.fromkeys(FEATURES, 0.5 * number) | {"V339": "" if number == 2 else number}
            cells = {"TransactionID": 100 + number, "isFraud": number % 2, "TransactionDT": 1000 - 10 * number}
            row = cells | {"ProductCD": product} | dict.fromkeys(CODES, "visa") | features
            writer.writerow([row[name] for name in HEADER])
    rows = [f"{100 + number},0.0,desktop" for number, product in enumerate(products) if product != "W"][::-1]
    (folder / IDENTITIES).write_text("\n".join(["TransactionID,id_01,DeviceType", *rows, ""]))


def test_features_are_the_numbers_that_the_paper_counts() -> None:
    assert len(FEATURES) == len(set(FEATURES)) == 371


def test_transactions_with_an_identity_are_joined_to_those_before_them(tmp_path: Path) -> None:
    write(tmp_path / "raw" / "ieee-fraud")
    graph, protocol = load_graph("ieee-fraud:neighbours=2", tmp_path)
    assert isinstance(graph, FederatedGraph)
    assert (graph.nodes, graph.features, graph.classes, protocol.metric) == (6, 371, 2, "auc")
    assert graph.y.tolist() == [1, 0, 1, 0, 1, 0]
    assert graph.client_names == ("C", "H")
    assert graph.owner.tolist() == [0, 0, 1, 0, 1, 0]
    # C has the nodes 0, 1, 3, 5, whose times fall; each is joined to the next two, but not the first to the last.
    assert graph.edges.T.tolist() == [[0, 1], [0, 3], [1, 3], [1, 5], [2, 4], [3, 5]]
    assert graph.x[:, 0] == pytest.approx((np.arange(6) - 2.5) / np.arange(6).std())
    known = np.array([1, 3, 4, 5, 6])
    assert graph.x[:, -1] == pytest.approx(np.insert((known - known.mean()) / known.std(), 1, 0.0))
    again, _ = load_graph("ieee-fraud:neighbours=2", tmp_path)  # as it was stored
    assert isinstance(again, FederatedGraph)
    assert again.owner.tolist() == graph.owner.tolist()


def test_products_are_the_natural_clients(tmp_path: Path) -> None:
    write(tmp_path / "raw" / "ieee-fraud", PRODUCTS * 3)
    options = {"partition": "natural", "clients": None, "split": "5fold", "rounds": 1, "data": str(tmp_path)}
    assert fedquilt.run("majority", "ieee-fraud", metric="accuracy", min_train=1, **options).result["clients"] == 2


def test_other_files_are_one_sentence(tmp_path: Path) -> None:
    write(tmp_path)
    table = (tmp_path / TRANSACTIONS).read_text()
    (tmp_path / TRANSACTIONS).write_text(table.replace("V339", "V340"))
    with pytest.raises(FedquiltError, match=r"has no column 'V339'; it is not Kaggle's train_transaction\.csv"):
        read_ieee_fraud(tmp_path, "fraud", 1)
    for broken in (table[:-30], table.replace("0.5", "half", 1)):
        (tmp_path / TRANSACTIONS).write_text(broken)
        with pytest.raises(FedquiltError, match=r"train_transaction\.csv, or not all of it; get it again"):
            read_ieee_fraud(tmp_path, "fraud", 1)
    (tmp_path / TRANSACTIONS).write_text(table.split("\n")[0])
    with pytest.raises(FedquiltError, match="has no transaction of train_identity"):
        read_ieee_fraud(tmp_path, "fraud", 1)
    (tmp_path / IDENTITIES).unlink()
    with pytest.raises(FedquiltError, match=r"train_identity\.csv cannot be read \(No such file"):
        read_ieee_fraud(tmp_path, "fraud", 1)
