from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.reports.page.build import page_html, write_page
from fedquilt.reports.page.condense import curve, holdings, mean_over_factors, similarity, thinned
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageFacts, PageTable
from fedquilt.reports.page.folders import read_page_run
from fedquilt.reports.page.of_runs import page_of_comparison, page_of_run
from fedquilt.reports.page.payload import MANY_RUNS, payload
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.result import build_result
from support.page_runs import HOSTILE, write_run

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Elements(HTMLParser):
    """The elements of a document, the text of the data, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data, self.seen, self.inside = "", "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        if self.inside == "page-data":
            self.data += data
        elif self.inside not in ("script", "style"):
            self.seen += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def result_of(folder: Path) -> dict[str, Any]:
    run = RunFolder.open(folder)
    summaries = [run.seed(seed).summary or {} for seed in run.config["seeds"]]
    return build_result(run.config, summaries)


def data_of(page: Page) -> dict[str, Any]:
    return json.loads(Elements(page_html(page)).data)


def unpacked(one: dict[str, Any], factor: int = 0) -> np.ndarray:
    """What the page's script makes of a packed matrix."""
    text, size = one["levels"][factor], one["size"]
    values = [DIGITS.index(a) * 64 + DIGITS.index(b) for a, b in zip(text[::2], text[1::2], strict=True)]
    levels = np.zeros((size, size))
    if one["symmetric"]:
        levels[np.triu_indices(size)] = values
        levels = np.maximum(levels, levels.T)
    else:
        levels = np.array(values, dtype=float).reshape(size, size)
    return one["low"][factor] + levels / 1000 * (one["high"][factor] - one["low"][factor])


def test_a_run_becomes_what_its_charts_need(tmp_path: Path) -> None:
    run = read_page_run(write_run(tmp_path / "run"), "FED-PUB", "cora, disjoint, 4 clients")
    assert (run.label, run.method, run.metric) == ("FED-PUB", "fedpub", "accuracy")
    assert run.curve.rounds == tuple(range(12))
    records = [RunFolder.open(tmp_path / "run").seed(seed).records() for seed in (0, 1)]
    tests = np.array([[record["test"] for record in rows] for rows in records])
    np.testing.assert_allclose(run.curve.test, tests.mean(0), atol=0.0051)
    np.testing.assert_allclose(run.curve.deviation, tests.std(0), atol=0.0051)
    assert [seed.seed for seed in run.seeds] == [0, 1]
    assert run.seeds[0].tests == tuple(round(test, 2) for test in records[0][-1]["clients"]["test"])
    assert run.upload == {"model.weight": 4000, "embedding": 500}
    assert run.download == {"model.weight": round(4000 * 11 / 12, 1)}
    assert run.phases == {"train": 0.012, "evaluate": 0.005, "server": 0.001, "other": 0.002}
    assert [(one.round, one.best) for one in run.seeds[0].similarities] == [
        (0, False),
        (4, False),
        (9, False),
        (11, True),
    ]


def test_seeds_may_be_in_folders_of_their_own(tmp_path: Path) -> None:
    together = read_page_run(write_run(tmp_path / "both", seeds=(0, 1)), "a", "s")
    folders = [write_run(tmp_path / f"seed{seed}", seeds=(seed,)) for seed in (0, 1)]
    apart = read_page_run(folders, "a", "s")
    assert apart.curve == together.curve
    assert [seed.seed for seed in apart.seeds] == [0, 1]
    assert "--seeds 0,1" in apart.command
    with pytest.raises(FedquiltError, match="no folder"):
        read_page_run([], "a", "s")


def test_an_old_or_unfinished_run_shows_what_there_is(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", phases=False, classes=None, similarity=False, done=False)
    run = read_page_run(folder, "a", "s")
    assert run.phases == {"round": 0.02}
    assert run.seeds[0].best_round == 11
    assert len(run.seeds[0].tests) == 4
    assert run.seeds[0].similarities == ()
    assert run.seeds[0].holdings is not None
    assert run.seeds[0].holdings.counts == ()
    for file in folder.glob("seed-*/*"):
        file.unlink()
    empty = read_page_run(folder, "a", "s")
    assert empty.curve.rounds == ()
    assert empty.phases == {}
    assert empty.seeds[0].best_round is None
    data_of(Page("nothing yet", runs=(empty,)))


def test_long_curves_are_thinned_but_keep_the_first_the_last_and_the_best() -> None:
    records = [{"round": i, "val": 50.0 + (i == 777), "test": 50.0} for i in range(5000)]
    thin = curve([records])
    assert len(thin.rounds) <= 200
    assert {0, 777, 4999} <= set(thin.rounds)
    assert curve([[]]).rounds == ()


def test_similarities_survive_the_packing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", factors=3, clients=7)
    seed = data_of(Page("t", runs=(read_page_run(folder, "a", "s"),)))["runs"][0]["seeds"][0]
    arrays = RunFolder.open(folder).seed(0).load_arrays("similarity") or {}
    off = ~np.eye(7, dtype=bool)
    for one, key in zip(seed["similarities"], ("0", "4", "9", "-1"), strict=True):
        for factor in range(3):
            np.testing.assert_allclose(unpacked(one, factor)[off], arrays[key][factor][off], atol=1e-3)


def test_a_matrix_without_symmetry_with_gaps_and_with_many_clients() -> None:
    rng = np.random.default_rng(0)
    square = rng.uniform(-1, 1, (5, 5))
    square[1, 2] = np.nan
    one = similarity(square, 3, False)
    assert one.levels[0, 1, 2] == -1
    assert one.levels.max() <= 1000
    many = similarity(rng.uniform(0, 1, (1000, 1000)), 0, True)
    assert many.block == 10
    assert many.levels.shape == (1, 100, 100)
    same = similarity(np.ones((3, 3)), 0, True)
    assert (same.levels == 0).all()
    factors = rng.uniform(0, 1, (4, 6, 6))
    mean = mean_over_factors(similarity(factors, 0, True))
    off = ~np.eye(6, dtype=bool)
    values = mean.low[0] + mean.levels[0] / 1000 * (mean.high[0] - mean.low[0])
    np.testing.assert_allclose(values[off], factors.mean(0)[off], atol=2e-3)


def test_many_clients_and_classes_become_blocks_and_others() -> None:
    counts = np.ones((1000, 40), dtype=int)
    cut = holdings({"sizes": counts.sum(1), "class_counts": counts})
    assert cut is not None
    assert cut.block == 5
    assert len(cut.sizes) == 200
    assert len(cut.classes) == 15
    assert cut.classes[-1] == "others"
    assert sum(map(sum, cut.counts)) == sum(cut.sizes) == 40_000
    assert holdings(None) is None
    few = thinned(list(range(1000)), 10, lambda i: i)
    assert few[0] == 0
    assert few[-1] == 999
    assert len(few) == 10


def test_the_config_is_shown_and_the_command_repeats_it(tmp_path: Path) -> None:
    more = {"participation": 0.5, "settings": {"lr": 0.01, "share": "a b"}, "evaluate_every": 2, "sizes": [2, 1]}
    run = read_page_run(write_run(tmp_path / "run", more=more), "a", "s")
    assert run.command == (
        "fedquilt run --method fedpub --dataset cora --clients 4 --sizes 2,1 --seeds 0,1 --rounds 12 --metric accuracy "
        "--participation 0.5 --eval-every 2 --set lr=0.01 --set 'share=a b'"
    )
    groups = {group.title: dict(group.pairs) for group in run.facts}
    assert groups["Method settings"] == {"lr": "0.01", "hidden": "8"}
    assert groups["Environment and versions"] == {"device": "cpu", "fedquilt": "0.1.0", "torch": "2"}
    assert groups["Run"]["seeds"] == "0, 1"
    assert "attack_scale" not in groups["Run"]
    own = read_page_run(write_run(tmp_path / "own", more={"dataset": "graph.npz"}), "a", "s")
    assert own.command.startswith("fedquilt run --config config.json")


def test_the_page_of_a_run_and_of_a_comparison(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, name, level=level) for name, level in (("fedavg", 60), ("quilt", 75))]
    results = [result_of(folder) for folder in folders]
    page = page_of_comparison("cmp", folders, results, ["fedavg: Seed 1 is not done."])
    assert page.title == "cora, disjoint, 4 clients"
    assert page.lead.startswith("quilt has the best test accuracy, ")
    assert [run.label for run in page.runs] == ["fedavg", "quilt"]
    assert [cell.tone for cell in page.tables[0].rows[1][:2]] == ["head", "best"]
    assert page.facts[0].code.startswith("fedquilt compare --methods fedavg,quilt --dataset cora")
    one = page_of_run(folders[0], results[0])
    assert one.title == "fedavg on cora, disjoint, 4 clients"
    assert not any(cell.tone == "best" for row in one.tables[0].rows for cell in row)
    seen = Elements(page_html(page)).seen
    assert "fedavg: Seed 1 is not done." in seen
    assert str(tmp_path) not in page_html(page)


def test_runs_of_the_same_method_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, "quilt") for name in ("plain", "wide")]
    page = page_of_comparison("cmp", folders, [result_of(folder) for folder in folders])
    assert [run.label for run in page.runs] == ["plain", "wide"]
    other = write_run(tmp_path / "other", "quilt", dataset="pubmed")
    page = page_of_comparison("cmp", [folders[0], other], [result_of(folder) for folder in (folders[0], other)])
    assert page.title == "cmp"
    assert [run.label for run in page.runs] == ["quilt", "quilt"]
    assert data_of(page)["settings"] == ["cora, disjoint, 4 clients", "pubmed, disjoint, 4 clients"]


def test_nothing_that_someone_named_becomes_markup(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", more={"settings": {HOSTILE: HOSTILE}, "data": HOSTILE})
    run = read_page_run(folder, HOSTILE, HOSTILE)
    run = dataclasses.replace(run, upload={HOSTILE: 1.0}, phases={HOSTILE: 1.0})
    table = PageTable(HOSTILE, HOSTILE, ((HeaderCell(HOSTILE),),), ((PageCell(HOSTILE, HOSTILE, "best"),),))
    facts = PageFacts(HOSTILE, ((HOSTILE, HOSTILE),), HOSTILE)
    page = Page(HOSTILE, HOSTILE, (HOSTILE,), (table,), (run,), (facts,))
    text = page_html(page)
    document = Elements(text)
    assert document.all("img") == []
    assert len(document.all("script")) == 3
    assert json.loads(document.data)["runs"][0]["label"] == HOSTILE
    assert HOSTILE in document.seen
    assert text.count("</script>") == 3


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    page = page_of_run(folder := write_run(tmp_path / "run"), result_of(folder))
    document = Elements(page_html(page))
    policy = next(meta for meta in document.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert (policy["content"] or "").startswith("default-src 'none';")
    sources = [attributes.get(name) for _, attributes in document.tags for name in ("src", "href")]
    assert all(source.startswith(("#", "data:")) for source in sources if source)
    assert len(page_html(Page("no runs"))) < 100_000  # without runs there are no charts, and no library for them


def test_tables_have_headers_over_several_columns_and_signs_beside_colours() -> None:
    headers = (
        (HeaderCell("Method", rowspan=2), HeaderCell("Cora", colspan=2)),
        (HeaderCell("5"), HeaderCell("10")),
    )
    rows = tuple(
        (PageCell(name, tone="head"), PageCell("80.00 ± 1.00", "paper 79.00", tone), PageCell("-", tone="muted"))
        for name, tone in (("a", "best"), ("b", "exceeded"), ("c", "reached"), ("d", "missed"))
    )
    text = page_html(Page("t", tables=(PageTable("Accuracy", "How to read it.", headers, rows),)))
    document = Elements(text)
    cells = document.all("th")
    assert cells[0] == {"scope": "col", "rowspan": "2"}
    assert cells[1] == {"scope": "colgroup", "colspan": "2", "class": "group"}
    assert cells[2] == {"scope": "col", "class": "number"}
    assert [cell["scope"] for cell in cells[4:]] == ["row"] * 4
    for sign, word in (("★", "best"), ("▲", "exceeded"), ("✓", "reached"), ("▽", "missed")):
        assert document.seen.count(sign) == 2  # in its cell and in the key
        assert f"({word})" in document.seen
    with pytest.raises(FedquiltError, match="There is no tone 'bset'; did you mean 'best'"):
        PageCell("x", tone="bset")


def test_methods_of_a_comparison_share_their_cut(tmp_path: Path) -> None:
    first = read_page_run(write_run(tmp_path / "a", "aaaaaa"), "a", "s")
    second = read_page_run(write_run(tmp_path / "b", "bbbbbb"), "b", "s")
    data = data_of(Page("t", runs=(first, second)))
    assert len(data["holdings"]) == 2  # a seed each
    assert [seed["holdings"] for run in data["runs"] for seed in run["seeds"]] == [0, 1, 0, 1]


def test_a_page_of_400_runs_stays_small(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", seeds=(0, 1, 2), rounds=200, clients=50, factors=6, classes=40, more={"clients": 50}
    )
    run = read_page_run(folder, "a", "s")
    runs = tuple(
        dataclasses.replace(run, label=f"method {i % 11}", setting=f"graph {i // 11}, disjoint, 50 clients")
        for i in range(400)
    )
    page = Page("A study", runs=runs)
    write_page(page, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 6_000_000
    data = json.loads(payload(page))
    assert data["similaritiesLeftOut"]
    assert all("similarities" not in seed for run in data["runs"] for seed in run["seeds"][1:])
    few = json.loads(payload(Page("t", runs=runs[:2])))
    assert not few["similaritiesLeftOut"]
    assert all(len(seed["similarities"]) == 4 for run in few["runs"] for seed in run["seeds"])
    some = json.loads(payload(Page("t", runs=runs[: MANY_RUNS + 1])))
    assert all("similarities" not in seed for run in some["runs"] for seed in run["seeds"][1:])


def test_every_script_is_in_the_page_and_none_can_end_it_early() -> None:
    from fedquilt.reports.page import build

    assets = Path(build.__file__).parent / "assets"
    assert {path.stem for path in (assets / "js").glob("*.js")} == set(build._SCRIPTS)
    for path in [*(assets / "js").glob("*.js"), assets / "echarts.min.js"]:
        assert not re.search(r"</script|<!--", path.read_text(encoding="utf-8"), re.IGNORECASE), path
    assert "</style" not in (assets / "page.css").read_text(encoding="utf-8")
    for name in ("LICENSE", "NOTICE", "LICENSE-d3"):
        assert (assets / f"echarts.{name}").is_file()
