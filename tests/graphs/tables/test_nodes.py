"""The table of nodes: its columns by name, labels, split."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.encoding import Column, Encoding
from fedquilt.graphs.tables.nodes import Nodes, read_nodes
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems


def nodes(
    tmp_path: Path, text: str, encoding: Encoding | None = None, labelled: bool = True, **options: object
) -> Nodes:
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    problems = Problems(path)
    found = read_nodes(path, TableOptions(**options), problems, labelled, encoding, tmp_path / "classes.txt")
    problems.raise_any()
    assert found is not None
    return found


def test_columns_of_other_names(tmp_path: Path) -> None:
    text = "Patient,Outcome,Part,Ward,age\n1,ill,Training,w1,30\n2,well,valid,w2,40\n3,NA,TEST,w1,50\n"
    found = nodes(tmp_path, text, id="patient", label="Outcome", split="part", client="ward")
    assert found.ids == ["1", "2", "3"]
    assert (found.y.tolist(), found.class_names) == ([0, 1, -1], ("ill", "well"))
    assert {part: mask.tolist().index(True) for part, mask in found.masks.items()} == {"train": 0, "val": 1, "test": 2}
    assert found.clients.tolist() == ["w1", "w2", "w1"]
    encoding = found.encoding
    assert (encoding.id, encoding.label, encoding.split, encoding.client) == ("Patient", "Outcome", "Part", "Ward")
    assert encoding.feature_names == ("age",)


def test_missing_labels_in_many_words(tmp_path: Path) -> None:
    found = nodes(tmp_path, "id,label,f\n" + "".join(f"{n},{label},1\n" for n, label in enumerate(
        ["0", "1", "", "-1", "NA", "nan", "null", "?", "unknown"])), missing=["unknown"])  # fmt: skip
    assert found.y.tolist() == [0, 1, *[-1] * 7]
    assert found.class_names is None
    assert nodes(tmp_path, "id,label,f\n1,none,1\n2,ill,1\n").class_names == ("ill", "none")


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    """As pandas writes the numbers of rows."""
    found = nodes(tmp_path, ",id,label,f\n0,a,0,5\n1,b,1,6\n")
    assert found.encoding.feature_names == ("f",)
    assert found.notes[-1].text == "it has no name"


def test_an_encoding_knows_the_columns(tmp_path: Path) -> None:
    encoding = Encoding((Column("age"), Column("bmi")), id="Patient", label="Outcome", dropped=("name",))
    text = "bmi,Patient,name,age\n20,p1,Ann,31\n"
    found = nodes(tmp_path, text, encoding, labelled=False)
    assert found.x.tolist() == [[31, 20]]
    assert found.encoding is encoding
    with pytest.raises(FedquiltError) as caught:
        nodes(tmp_path, "bmi,Patient,height\n20,p1,31\n", encoding, labelled=False)
    assert "it has no column 'age', which the model was trained on" in str(caught.value)
    assert "it has a column 'height', which the model was not trained on" in str(caught.value)


def test_a_table_to_predict_for_needs_no_label_nor_client_though_its_graph_yaml_names_them(tmp_path: Path) -> None:
    encoding = Encoding((Column("age"),), id="Patient", label="Outcome", client="ward")
    named = {"id": "Patient", "label": "Outcome", "client": "ward", "drop": ["name"]}
    assert nodes(tmp_path, "Patient,age\np1,31\n", encoding, labelled=False, **named).x.tolist() == [[31]]
    with pytest.raises(FedquiltError, match="no column 'ward'"):
        nodes(tmp_path, "Patient,Outcome,age\np1,ill,31\n", **named)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "patient"}, "no column 'patient'"),
        ({"split": "part"}, "no column 'part'"),
        ({"drop": ["x"]}, "no column 'x', which is named under drop"),
        ({"categories": {"x": None}}, "no column 'x', which is named under categories"),
        ({"numeric": ["x"]}, "no column 'x', which is named under numeric"),
        ({"drop": ["f"]}, "no feature columns"),
    ],
)
def test_a_column_that_is_named_has_to_be_there(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        nodes(tmp_path, "id,label,f\na,0,1\nb,1,1\n", **options)


def test_long_ids_and_columns_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="line 2: its id has more than 1,000 characters"):
        nodes(tmp_path, f"id,label,f\n{'x' * 1001},0,1\n")
    with pytest.raises(FedquiltError, match="a label has more than 1,000 characters"):
        nodes(tmp_path, f"id,label,f\na,{'x' * 1001},1\n")
    with pytest.raises(FedquiltError, match="a column's name has more than 1,000 characters"):
        nodes(tmp_path, f"id,label,{'x' * 1001}\na,0,1\n")
    with pytest.raises(FedquiltError, match="no column has a value that could be a feature"):
        nodes(tmp_path, "id,label,f\na,0,\nb,1,\n")
