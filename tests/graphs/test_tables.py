"""A user's folder of tables, as csv and as parquet."""

from __future__ import annotations

import builtins
from pathlib import Path

import numpy as np
import pytest

from fedquilt.common import read_limit
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables import dialect, nodes, read_tables

NODES = "id,label,age,income,split\nann,0,31,2.5,train\nbob,1,45,1e3,val\neve,,27,-4,test\n"
EDGES = "source,target\nann,bob\nbob,eve\neve,bob\nann,ann\n"


def folder_of(tmp_path: Path, nodes: str = NODES, edges: str = EDGES, **others: str) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir(parents=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    for name, text in others.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def test_csv(tmp_path: Path) -> None:
    graph, protocol = load_graph(folder_of(tmp_path))
    assert graph.name == "mine"
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.x.tolist() == [[31, 2.5], [45, 1000], [27, -4]]
    assert graph.y.tolist() == [0, 1, -1]
    assert graph.ids.tolist() == ["ann", "bob", "eve"]
    assert graph.feature_names == ("age", "income")
    assert {part: mask.tolist().index(True) for part, mask in graph.masks.items()} == {
        "train": 0,
        "val": 1,
        "test": 2,
    }
    assert (protocol.split, protocol.rounds, protocol.metric) == ((0.2, 0.4, 0.4), 100, "accuracy")


def test_labels_in_words_are_sorted_and_named(tmp_path: Path) -> None:
    graph = read_tables(folder_of(tmp_path, "id,label,f\n1,sick,0\n2,-1,0\n3,healthy,1\n", "a,b\n1,2\n"))
    assert graph.y.tolist() == [1, -1, 0]
    assert graph.class_names == ("healthy", "sick")
    assert graph.masks is None


def test_classes_file_fixes_the_numbering_for_all_sites(tmp_path: Path) -> None:
    text = "id,label,f\n1,sick,0\n2,,0\n3,healthy,1\n"
    graph = read_tables(folder_of(tmp_path, text, "a,b\n1,2\n", classes="sick\nunsure\nhealthy\n"))
    assert graph.y.tolist() == [0, -1, 2]
    assert graph.classes == 3


def test_whole_numbers_keep_their_value(tmp_path: Path) -> None:
    graph = read_tables(folder_of(tmp_path, "id,label,f\n1,3,0\n2,-1.0,0\n3,1.0,1\n", "a,b\n1,2\n"))
    assert graph.y.tolist() == [3, -1, 1]
    assert (graph.classes, graph.class_names) == (4, None)


@pytest.mark.parametrize(
    "edges",
    [
        "src,dst\n1,2\n2,3\n",
        "weight,target,source\n9,1,2\n9,2,3\n",
        "from,to\n1,2\n2,3\n",
        "1,2\n2,3\n",
        "\ufeffsource,target\r\n1, 2\r\n\r\n2,3\r\n",
    ],
)
def test_ways_to_write_edges(tmp_path: Path, edges: str) -> None:
    graph = read_tables(folder_of(tmp_path, "id,label,f\n1,0,0\n2,1,0\n3,1,1\n", edges))
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ("", EDGES, "nodes.csv: it is empty; its first line has to name the columns"),
        ("id,f\n1,0\n", EDGES, "no column 'label' .it has: id, f.; name the right one with --label or in graph.yaml"),
        ("no,label,f\nann,0,1\nbob,0,1\n", EDGES, "no column 'id' .*with --id or in graph.yaml, such as 'id: no'"),
        ("id,label\n1,0\n", EDGES, "no feature columns"),
        ("id,label,f,f\n1,0,0,0\n", EDGES, "the column 'f' more than once"),
        ("id,label,f\n", EDGES, "nodes.csv: it has no nodes"),
        ("id,label,f\nann,0\nbob,0,1\n", "ann,bob\n", "line 2: it has 2 columns but the header has 3"),
        ("id,label,f\nann,0,1\nbob,0,tall\neve,1,1\n", EDGES, "line 3: 'tall' in the column 'f' is not a number"),
        ("id,label,f\nann,0,1\nann,0,1\n", "ann,ann\n", "line 3: the id 'ann' is that of line 2 too"),
        ("id,label,f\nann,0,1\n,0,1\n", "ann,ann\n", "line 3: it has no id"),
        ("id,label,f\nann,0,1\nbob,0,inf\n", "a,b\nann,bob\n", "line 3: 'inf' in the column 'f' is not a number"),
        ("id,label,f\nann,0,1\nbob,0,1e300\n", "ann,bob\n", "line 3: a number in the column 'f' is beyond 1e.15"),
        ("id,label,f\nann,,1\nbob,-1,1\n", "a,b\nann,bob\n", "no labelled node"),
        ("id,label,f,split\nann,0,1,x\n", "ann,ann\n", "line 2: the split 'x' is none; write train, val, test"),
        (NODES, "source,target\nann,joe\n", "edges.csv, line 2: an edge to 'joe', which is not an id in nodes.csv"),
        (NODES, "source,target\nann\n", "line 2: it has 1 columns but the header has 2"),
        (NODES, "a,b,c\nann,bob,1\n", "no columns 'source' and 'target' .it has: a, b, c"),
        (NODES, "", "no columns 'source' and 'target' .it has: nothing"),
        (NODES, 'source,target\n"ann,bob\n', "not a sound csv file|line [23]: it has 1 columns"),
        (NODES, "source,target\na\0nn,bob\n", "edges.csv has NUL characters"),
    ],
)
def test_faults(tmp_path: Path, nodes: str, edges: str, message: str) -> None:
    with pytest.raises(FedquiltError, match=message) as caught:
        read_tables(folder_of(tmp_path, nodes, edges))
    assert "\n" not in str(caught.value)


def test_faults_of_the_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, classes="0\n")
    with pytest.raises(FedquiltError, match=r"line 3: the label '1' is not in classes.txt; add it there"):
        read_tables(folder)
    (folder / "classes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FedquiltError, match=r"classes.txt is not text in UTF-8"):
        read_tables(folder)
    (folder / "classes.txt").write_text("0\n1\n\n0\n")
    with pytest.raises(FedquiltError, match=r"classes.txt has the class '0' more than once"):
        read_tables(folder)
    (folder / "classes.txt").unlink()
    (folder / "classes.txt").mkdir()
    with pytest.raises(FedquiltError, match=r"classes.txt could not be opened \(Is a directory\)"):
        read_tables(folder)
    (folder / "nodes.csv").write_bytes(b"id,label,f\n\x81\x8d,0,0\n")
    with pytest.raises(FedquiltError, match=r"nodes.csv is not text in UTF-8, UTF-16 or Latin-1"):
        read_tables(folder)
    (folder / "nodes.parquet").write_bytes(b"not parquet")
    with pytest.raises(FedquiltError, match=r"has both nodes.csv and nodes.parquet"):
        read_tables(folder)
    (folder / "nodes.csv").unlink()
    with pytest.raises(FedquiltError, match=r"nodes.parquet is not a parquet file|needs pyarrow"):
        read_tables(folder)
    (folder / "edges.csv").unlink()
    with pytest.raises(FedquiltError, match=r"has no edges.csv or edges.parquet"):
        read_tables(folder)


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    expected = read_tables(folder_of(tmp_path, NODES.replace("ann", "7"), EDGES.replace("ann", "7")))
    folder = tmp_path / "parquet"
    folder.mkdir()
    nodes = {
        "id": ["7", "bob", "eve"],
        "label": [0.0, 1.0, None],
        "age": [31, 45, 27],
        "income": [2.5, 1e3, -4],
        "split": ["train", "val", "test"],
    }
    edges = {"weight": [1, 1, 1], "target": ["bob", "eve", "bob"], "source": ["7", "bob", "eve"]}
    parquet.write_table(pa.table(nodes), folder / "nodes.parquet")
    parquet.write_table(pa.table(edges), folder / "edges.parquet")
    graph = read_tables(folder)
    assert np.array_equal(graph.edges, expected.edges)
    assert np.array_equal(graph.x, expected.x)
    assert np.array_equal(graph.y, expected.y)
    assert graph.ids.tolist() == expected.ids.tolist()
    assert graph.feature_names == expected.feature_names
    assert graph.masks["val"].tolist() == [False, True, False]

    parquet.write_table(pa.table({**nodes, "age": [31, None, 28]}), folder / "nodes.parquet")
    gaps = read_tables(folder)
    assert gaps.feature_names == ("age", "age:missing", "income")
    assert gaps.x[:, :2].tolist() == [[31, 0], [29.5, 1], [28, 0]]
    parquet.write_table(pa.table({**nodes, "age": [31, 5, float("inf")]}), folder / "nodes.parquet")
    with pytest.raises(FedquiltError, match="row 3: 'inf' in the column 'age' is not a number"):
        read_tables(folder)
    parquet.write_table(pa.table(nodes), folder / "nodes.parquet")
    parquet.write_table(pa.table({"source": ["bob", "joe"], "target": ["eve", "bob"]}), folder / "edges.parquet")
    with pytest.raises(FedquiltError, match="row 2: an edge to 'joe'"):
        read_tables(folder)


def test_labels_that_are_not_needed(tmp_path: Path) -> None:
    """As for predictions: without a column for them, or with a class that classes.txt does not know."""
    folder = folder_of(tmp_path, "id,f,g\n1,0,2\n2,5,0\n", "a,b\n1,2\n", classes="sick\nhealthy\n")
    graph = read_tables(folder, labelled=False)
    assert graph.y.tolist() == [-1, -1]
    assert (graph.class_names, graph.feature_names) == (("sick", "healthy"), ("f", "g"))
    assert graph.x.tolist() == [[0, 2], [5, 0]]
    with pytest.raises(FedquiltError, match="no column 'label'"):
        read_tables(folder)
    (folder / "nodes.csv").write_text("id,label,f\n1,unsure,0\n2,healthy,1\n")
    graph = read_tables(folder, labelled=False)
    assert graph.class_names == ("sick", "healthy", "unsure")
    assert graph.y.tolist() == [2, 1]
    with pytest.raises(FedquiltError, match="line 2: the label 'unsure' is not in"):
        read_tables(folder)


def test_labels_that_are_not_needed_in_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"id": ["1", "2"], "f": [0.5, 1.0]}), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("1,2\n")
    assert read_tables(tmp_path, labelled=False).y.tolist() == [-1, -1]


def test_files_that_may_not_be_read_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path, classes="0\n1\n")

    def forbidden(path: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(read_limit, "read_bounded", forbidden)
        with pytest.raises(FedquiltError, match=r"classes.txt could not be opened \(Permission denied\)"):
            read_tables(folder)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_file", forbidden)  # as in a folder that may not be entered
        with pytest.raises(FedquiltError, match=r"mine cannot be read \(Permission denied\); check that you may enter"):
            load_graph(folder)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_pyarrow(name: str, *rest: object, **more: object) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    (tmp_path / "nodes.parquet").write_bytes(b"")
    (tmp_path / "edges.csv").write_text(EDGES)
    monkeypatch.setattr(builtins, "__import__", no_pyarrow)
    with pytest.raises(
        FedquiltError, match=r"needs pyarrow to be read; install it with `pip install 'fedquilt\[tables\]'`"
    ):
        read_tables(tmp_path)


def test_labels_of_hundreds_of_digits(tmp_path: Path) -> None:
    for sign, found in (("", "the label 1000000000000000000"), ("-", "the label -1000000000000000000")):
        folder = folder_of(tmp_path / f"x{sign}", nodes=f"id,label,f\na,{sign}{'9' * 400},1\nb,0,2\n", edges="a,b\n")
        with pytest.raises(FedquiltError, match=found):
            read_tables(folder)


def test_a_table_without_line_ends_is_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "LONGEST_LINE", 1000)
    monkeypatch.setattr(nodes, "LONGEST_LINE", 1000)
    folder = folder_of(tmp_path, nodes="id,label,f\n" + "a" * 2000, edges="a,b\n")
    with pytest.raises(FedquiltError, match=r"nodes\.csv has a line of more than 1,000 characters"):
        read_tables(folder)
    with pytest.raises(FedquiltError, match=r"classes\.txt cannot be read: it is larger than 1\.0 kB"):
        read_tables(folder_of(tmp_path / "b", classes="a" * 2000))


def test_a_table_that_fills_the_memory_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "9K")
    rows = "".join(f"n{i},0,1\n" for i in range(100))
    with pytest.raises(FedquiltError, match=r"nodes\.csv is too large"):
        read_tables(folder_of(tmp_path, nodes="id,label,f\n" + rows, edges="n0,n1\n"))
    with pytest.raises(FedquiltError, match=r"edges\.csv is too large"):
        read_tables(folder_of(tmp_path / "b", edges="source,target\n" + "ann,bob\n" * 999))


def test_a_parquet_file_of_very_many_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = folder_of(tmp_path, edges="a,b\n")
    (folder / "nodes.csv").unlink()
    rows = 200_000
    table = pyarrow.table({"id": ["a"] * rows, "label": [0] * rows, "f": [1.0] * rows})
    parquet.write_table(table, folder / "nodes.parquet")
    assert (folder / "nodes.parquet").stat().st_size < 20_000  # one value a column
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "2M")
    with pytest.raises(FedquiltError, match=r"nodes\.parquet is too large: its content would take 4\.8 MB"):
        read_tables(folder)
