from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

import fedquilt
from fedquilt.reports.read_run import read_run
from fedquilt.reports.views import ViewWeights, read_views, views_figure, views_sentence
from fedquilt.runs.folder import RunFolder
from support.page_runs import write_run

NAMES = ("mlp", "filter", "sage")
QUILTS = ("mlp", "filter", "gpr", "attention", "sage", "private")
MIXED = np.array([[0.0, 0.9, 0.1], [0.1, 0.6, 0.3], [0.2, 0.1, 0.7]])


def weights(clients: np.ndarray = MIXED, best: int | None = 4, names: tuple[str, ...] = ()) -> ViewWeights:
    rounds = np.arange(6)
    return ViewWeights(NAMES, clients, names, rounds, np.tile([0.2, 0.5, 0.3], (6, 1)), last=5, best=best)


def bars_of(figure: Figure | SubFigure) -> Axes:
    """The panel with a bar for each client."""
    return next(axes for axes in figure.axes if axes.get_xlabel() == "Weight")


def widths(figure: Figure, names: tuple[str, ...] = NAMES) -> np.ndarray:
    """The widths of the bars [M, V]."""
    bars = [bar for bar in bars_of(figure).patches if isinstance(bar, Rectangle)]
    return np.array([bar.get_width() for bar in bars]).reshape(len(names), -1).T


@pytest.fixture(scope="module")
def quilt_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views") / "run"
    fedquilt.run(
        "quilt",
        "patchwork",
        partition="natural",
        rounds=6,
        seeds=[0],
        settings={"hidden": 8, "masks": True},
        out=folder,
    )
    return folder


def test_the_weights_of_a_real_run_are_read_with_their_names(quilt_run: Path) -> None:
    run = read_run(quilt_run)
    (seed,) = run.seeds
    arrays = seed.folder.load_arrays("findings")
    assert arrays is not None
    found = read_views(run, seed, arrays)
    assert found is not None
    assert found.names == QUILTS
    np.testing.assert_allclose(found.clients, arrays["views"])
    np.testing.assert_allclose(found.clients.sum(1), 1, atol=1e-5)
    assert found.rounds.tolist() == list(range(6))
    assert found.by_round[-1].tolist() == [seed.records[-1]["diagnostics"][f"view_{name}"] for name in QUILTS]
    assert "view_masks" in seed.records[-1]["diagnostics"]  # which is no view
    assert (found.last, found.best) == (5, (seed.summary or {})["best_round"])
    assert views_sentence(found).startswith("Views: ")
    np.testing.assert_allclose(widths(views_figure([("", found)]), QUILTS), found.clients)


def test_a_run_without_views_has_none(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", "quilt", more={"resolved": {}}))
    seed = run.seeds[0]
    assert read_views(run, seed, None) is None
    assert read_views(run, seed, {"coefficients": np.ones((4, 3))}) is None
    assert read_views(run, seed, {"views": np.full((4, 3), np.nan)}) is None


def test_views_without_names_are_numbered_and_rounds_may_be_missing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "quilt", more={"settings": {"views": "mlp,filter"}, "resolved": None})
    run = read_run(folder)
    found = read_views(run, run.seeds[0], {"views": np.ones((4, 3)) / 3})
    assert found is not None
    assert found.names == ("1", "2", "3")
    assert (len(found.rounds), found.by_round.shape) == (0, (0, 3))
    assert len(views_figure([("", found)]).axes) == 1
    two = read_views(run, run.seeds[0], {"views": np.ones((4, 2)) / 2})
    assert two is not None
    assert two.names == ("mlp", "filter")


def test_a_round_that_lacks_a_weight_is_left_out(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", "quilt", rounds=1, done=False, more={"resolved": {"settings": {"views": "a,b"}}}
    )
    place = RunFolder.open(folder).seed(0)
    for number, recorded in ((1, {"view_a": 0.25, "view_b": 0.75, "other": 3.0}), (2, {"view_a": 1.0, "view_b": None})):
        place.append({**place.records()[0], "round": number, "diagnostics": recorded})
    run = read_run(folder)
    found = read_views(run, run.seeds[0], {"views": np.ones((4, 2)) / 2})
    assert found is not None
    assert (found.rounds.tolist(), found.by_round.tolist(), found.last) == ([1], [[0.25, 0.75]], 2)


def test_the_sentence_says_who_relies_on_what_and_when() -> None:
    assert views_sentence(weights(), "of seed 3") == (
        "Views of seed 3: filter 0.53, sage 0.37, mlp 0.10 on average after the last round "
        "(the results are of round 4); filter leads at 2 of 3 clients, sage at 1."
    )
    alone = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [np.nan, np.nan, np.nan]])
    assert views_sentence(weights(alone, best=5)) == "Views: filter 1.00 on average after the last round."


def test_each_client_is_a_bar_and_the_rounds_are_beside_them() -> None:
    figure = views_figure([("", weights())], "Quilt, seed 0")
    bars, rounds = figure.axes
    assert bars.get_title(loc="left") == "Each client, after the last round\n(the results are of round 4)"
    assert (bars.get_xlim(), [label.get_text() for label in bars.get_yticklabels()]) == ((0, 1), ["0", "1", "2"])
    np.testing.assert_allclose(widths(figure), MIXED)
    assert np.asarray(rounds.get_lines()[0].get_xdata()).tolist() == [4, 4]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(NAMES)
    assert figure.subfigs[0].get_suptitle() == "Quilt, seed 0"


def test_clients_have_their_names_and_many_have_few_labels() -> None:
    named = views_figure([("", weights(names=("North", "A hospital with a long name", "$x$")))])
    axes = bars_of(named)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["North", "A hospital wi…", r"\$x\$"]
    assert axes.get_ylabel() == ""
    many = views_figure([("", weights(np.tile(MIXED, (40, 1))))])
    axes = bars_of(many)
    assert len(axes.get_yticks()) < 20
    assert axes.get_title(loc="left").startswith("Each client")


def test_runs_side_by_side_share_the_colours_of_their_views() -> None:
    fewer = dataclasses.replace(weights(MIXED[:, 1:]), names=("filter", "sage"), by_round=np.full((6, 2), 0.5))
    figure = views_figure([("drop=True", weights()), ("drop=False", fewer)], "Title")
    assert figure.get_suptitle() == "Title"
    assert [half.get_suptitle() for half in figure.subfigs] == ["drop=True", "drop=False"]
    one, two = (bars_of(half) for half in figure.subfigs)
    assert one.patches[3].get_facecolor() == two.patches[0].get_facecolor()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(NAMES)
