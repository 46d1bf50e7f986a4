"""site.yaml: what it may say, and one sentence for the first thing that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SiteConfig, load_site_graph, read_site, site_split, split_name
from fedquilt.graphs.copies import equal_neighbours
from fedquilt.graphs.split import TRAIN
from support.federations import ragged_clients
from support.trained_sites import as_file, client_at, write_site


def write(folder: Path, text: str) -> Path:
    (folder / "site.yaml").write_text(text)
    return folder / "site.yaml"


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hospital").mkdir()
    path = write(tmp_path / "hospital", "{name: a, graph: data/graph.npz, state: ../kept}")
    monkeypatch.chdir(tmp_path)
    for given in (path, Path("hospital/site.yaml")):
        site = read_site(given)
        assert Path(site.graph) == tmp_path / "hospital" / "data" / "graph.npz"
        assert Path(site.state).resolve() == tmp_path / "kept"
    assert site.permits == ["weights", "counts"]
    assert site.dp is None
    absolute = read_site(write(tmp_path, f"{{name: a, graph: /g.npz, state: {tmp_path}/s}}"))
    assert (absolute.graph, absolute.state) == ("/g.npz", f"{tmp_path}/s")


def test_numbers_are_read_as_people_write_them(tmp_path: Path) -> None:
    dp = read_site(write(tmp_path, "{name: a, graph: g, state: s, dp: {clip: 1, noise: 2.5, delta: 1e-6}}")).dp
    assert dp is not None
    assert (dp.clip, dp.noise, dp.delta, dp.epsilon) == (1.0, 2.5, 1e-6, None)


GOOD = "name: a\ngraph: g\nstate: s\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nstate: s\n", "does not say 'graph'; a site needs name, graph and state"),
        (GOOD + "grph: x\n", "there is no field 'grph'; did you mean 'graph'?"),
        (GOOD + "permits: some\n", "permits has to be 'all' or a list of upload names"),
        (GOOD + "permits: [1, 2]\n", "permits has to be 'all' or a list of upload names"),
        (GOOD + "permits: ['']\n", "permits has to be 'all' or a list of upload names"),
        (GOOD + f"permits: [{'a' * 201}]\n", "permits has to be 'all' or a list of upload names"),
        (GOOD + "dp: {noise: 1}\n", "dp.clip is not possible: field required"),
        (GOOD + "dp: {clip: 0, noise: 1}\n", "dp.clip=0 is not possible: input should be greater than"),
        (GOOD + "dp: {clip: 1, noise: -1}\n", "dp.noise=-1 is not possible"),
        (GOOD + "dp: {clip: 1, noise: 1, delta: 2}\n", "dp.delta=2 is not possible"),
        (GOOD + "dp: {clip: 1}\n", "dp is not possible: give noise, or an epsilon"),
        (GOOD + "dp: {clip: 1, noise: 1, epslon: 3}\n", "there is no field of dp 'epslon'; did you mean 'epsilon'?"),
        (GOOD + "dp: yes\n", "dp=True is not possible: it has to hold names and values, such as {clip: 1.0"),
        (GOOD + "dp: 1\n", "dp=1 is not possible: it has to hold names and values, such as {clip: 1.0"),
        (GOOD + "dp: {clip: 1, noise: 1, clip: 9}\n", "says 'clip' twice (line 4); keep one of them"),
        (GOOD + "permits: []\npermits: all\n", "says 'permits' twice (line 5); keep one of them"),
        (
            "name: 5\ngraph: g\nstate: s\n",
            "name has to be text, but YAML reads what stands there as 5; put it in quotes",
        ),
        ("name: no\ngraph: g\nstate: s\n", "YAML reads what stands there as False; put it in quotes"),
        (GOOD + "split: 20\n", "split has to be text, but YAML reads what stands there as 20; put it in quotes"),
        ("name:\ngraph: g\nstate: s\n", "does not say 'name'"),
        (GOOD + "device:\n", "device is not possible: input should be a valid string"),
        (GOOD + "split: 2020-13-45\n", "is not valid YAML"),
        ("", "must hold names and values, such as 'name: st-anna'"),
        ("st-anna\n", "must hold names and values, such as 'name: st-anna'"),
        *(
            (f"name: {name!r}\ngraph: g\nstate: s\n", f"name={name!r} is not possible: a name has up to 80 letters")
            for name in ("", "..", " ", "../up", "a/b", "[a]", "a" * 81, "anna ", " anna")
        ),
        ('name: "a\\nb"\ngraph: g\nstate: s\n', "is not possible: a name has up to 80 letters"),
        ("name: [a]\ngraph: g\nstate: s\n", "name=['a'] is not possible"),
        ("- a\n- b\n", "must hold names and values"),
        ("name: {a\n", "is not valid YAML"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(FedquiltError) as error:
        read_site(write(tmp_path, text))
    assert says in str(error.value)
    assert str(error.value).endswith((".", "?"))
    assert "\n" not in str(error.value)


def test_an_alias_is_not_said_twice(tmp_path: Path) -> None:
    text = "name: a\ngraph: g\nstate: s\npermits: &p [model, train_nodes]\n"
    assert read_site(write(tmp_path, text)).permits == ["model", "train_nodes"]
    with pytest.raises(FedquiltError, match=r"has an alias \*p inside of what it stands for \(line 4\)"):
        read_site(write(tmp_path, GOOD + "permits: &p [*p]\n"))  # within itself


def test_a_dataset_is_no_graph_of_a_site(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError) as error:
        load_site_graph(read_site(write(tmp_path, "{name: a, graph: cora, state: s}")))
    assert str(error.value) == (
        f"There is no file or folder '{tmp_path}/cora'; give an npz file, a folder of tables or a csv file."
    )


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="cannot be read: No such file"):
        read_site(tmp_path / "site.yaml")


def test_the_graphs_own_split_comes_before_the_usual_one(tmp_path: Path) -> None:
    client = ragged_clients((40,))[0]
    site = read_site(write_site(tmp_path, as_file(client)))
    mine = client_at(site, 4)
    assert mine.id == 4
    labelled = client.graph.y >= 0
    assert np.array_equal(mine.split[labelled], client.split[labelled])
    other = read_site(write_site(tmp_path, as_file(client), split="50/25/25"))
    assert split_name(other, load_site_graph(other)) == "50/25/25"
    drawn = client_at(other).split
    assert np.count_nonzero(drawn == TRAIN) == round(0.5 * np.count_nonzero(labelled))
    assert np.array_equal(client_at(other).split, drawn)  # the same every time
    plain = read_site(write_site(tmp_path, client.graph))
    assert split_name(plain, load_site_graph(plain)) == "20/40/40"


def test_a_site_may_keep_its_copies_together(tmp_path: Path) -> None:
    client = ragged_clients((40,))[0]
    plain = read_site(write_site(tmp_path, client.graph))
    assert load_site_graph(plain).copies is None
    site = plain.model_copy(update={"keep_copies": "neighbours"})
    graph = load_site_graph(site)
    assert np.array_equal(graph.copies, equal_neighbours(graph))
    parts, y = site_split(site, graph), graph.y
    for group in np.unique(graph.copies):
        assert len(set(parts[(graph.copies == group) & (y >= 0)])) <= 1


def test_a_peer_is_a_key(tmp_path: Path) -> None:
    lines = "name: a\ngraph: g\nstate: s\nsecure_peers: [{}]\n"
    assert read_site(write(tmp_path, lines.format("0a" * 32))).secure_peers == ["0a" * 32]
    with pytest.raises(FedquiltError, match="a key has 64 characters, as 'fedquilt site key' prints them"):
        read_site(write(tmp_path, lines.format("st-anna")))


def test_the_example_in_the_docs_is_a_site(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "sites.md").read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    site = read_site(write(tmp_path, example))
    assert site.permits == ["model.conv*", "train_nodes", "figures"]
    assert site.dp is not None
    assert set(site.model_fields_set) == set(SiteConfig.model_fields)
