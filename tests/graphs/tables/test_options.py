"""graph.yaml: its keys, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables.options import TableOptions, read_table_options, table_options


def test_what_a_file_says_and_what_options_change(tmp_path: Path) -> None:
    assert read_table_options(tmp_path) == TableOptions()
    (tmp_path / "graph.yaml").write_text(
        "id: patient\nclient: null\ncategories: {town: [Rome, Oslo], ward: null, code: [1, 2]}\nmissing: [-999, unknown]\n"
    )
    options = read_table_options(tmp_path)
    assert (options.id, options.client, options.cap) == ("patient", None, 20)
    assert options.values == {"town": ("Rome", "Oslo"), "ward": None, "code": ("1", "2")}
    assert options.missing == ["-999", "unknown"]
    assert options.says("client")
    assert not options.says("split")
    changed = table_options(tmp_path / "nodes.csv", {"id": "other", "cap": 3, "drop": None})
    assert (changed.id, changed.cap, changed.values) == ("other", 3, options.values)
    (tmp_path / "graph.yaml").write_text("# nothing\n")
    assert read_table_options(tmp_path) == TableOptions()
    assert TableOptions(categories=["town"]).values == {"town": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("idd: x\n", "graph.yaml: There is no key 'idd'; did you mean 'id'"),
        ("[1, 2]\n", "graph.yaml has no keys; write lines such as 'id: patient'"),
        ("cap: 0\n", "graph.yaml: 'cap' is not possible: input should be greater"),
        ("separator: x\n", "graph.yaml: 'separator' is not possible"),
        ("drop: name\n", "graph.yaml: 'drop' is not possible"),
        ("drop: [a]\nnumeric: [a]\n", "the column 'a' is named under two of categories, numeric and drop"),
        ("categories: {a: [x, y, x]}\n", "the column 'a' has the category 'x' twice"),
        ("id: [\n", "graph.yaml is not valid YAML"),
        ("id: x\nid: y\n", "graph.yaml says 'id' twice"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "graph.yaml").write_text(text)
    with pytest.raises(FedquiltError, match=message) as caught:
        read_table_options(tmp_path)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text("#" * 2**19)
    with pytest.raises(FedquiltError, match=r"graph.yaml cannot be read: it is larger than"):
        read_table_options(tmp_path)
    (tmp_path / "graph.yaml").unlink()
    (tmp_path / "graph.yaml").mkdir()
    with pytest.raises(FedquiltError, match=r"graph.yaml could not be opened"):
        read_table_options(tmp_path)
