from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedquilt.errors import FedquiltError
from fedquilt.reports import findings

M, C, D, ORDERS = 6, 4, 5, 4


def filters(clusters: list[int] | None = None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {"coefficients": rng.standard_normal((M, ORDERS))}
    if clusters is not None:
        labels = np.array(clusters)
        found |= {"structural_cluster": labels, "cluster_coefficients": rng.standard_normal((9, ORDERS))[labels]}
    return found


def responses(findings: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    frequencies = np.linspace(0, 2, 11)
    powers = (1 - frequencies) ** np.arange(ORDERS)[:, None]
    found = {"frequencies": frequencies, "responses": findings["coefficients"] @ powers}
    if "cluster_coefficients" in findings:
        found["cluster_responses"] = findings["cluster_coefficients"] @ powers
    return findings | found


def means(seed: int = 0, classes: int = C) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "class_means": rng.standard_normal((M, classes, D)).astype(np.float32),
        "class_counts": rng.integers(1, 20, (M, classes)),
    }


def panels(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes if axes.axison]


def drawn(figure: Figure) -> list[int]:
    """How many means each panel shows."""
    return [len(axes.collections[0].get_offsets()) for axes in figure.axes]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


# -- similarity by factor ----------------------------------------------------------------------------


@pytest.mark.parametrize(("factors", "axes"), [(1, 1), (2, 2), (5, 5), (7, 8)])
def test_factors_share_a_scale(factors: int, axes: int) -> None:
    matrices = np.random.default_rng(0).random((factors, 4, 4))
    figure = findings.factors_figure(matrices, "Title", groups=[0, 0, 1, 1])
    assert len(figure.axes) == axes + 1  # and the colour bar
    shown = [a for a in figure.axes if a.get_images()]
    assert [a.get_title() for a in shown] == [f"Factor {k + 1}" for k in range(factors)]
    assert len({a.get_images()[0].get_clim() for a in shown}) == 1
    for k, a in enumerate(shown):
        np.testing.assert_array_equal(a.get_images()[0].get_array(), matrices[k])
        assert [list(np.asarray(edge.get_xdata())) for edge in a.get_lines()][1] == [1.5, 1.5]
    assert figure.get_suptitle() == "Title"


# -- filters -----------------------------------------------------------------------------------------


def test_a_panel_a_cluster_the_largest_first() -> None:
    found = filters([2, 0, 2, 2, 0, -1])
    figure = findings.filters_figure([("", found)], "Title")
    assert panels(figure) == ["Cluster 3 (3 clients)", "Cluster 1 (2 clients)", "No cluster (1 client)"]
    for axes, members in zip(figure.axes, ([0, 2, 3], [1, 4], [5]), strict=True):
        *thin, bold = axes.get_lines()
        np.testing.assert_array_equal([line.get_ydata() for line in thin], found["coefficients"][members])
        np.testing.assert_array_equal(bold.get_ydata(), found["cluster_coefficients"][members[0]])
        assert all(bold.get_linewidth() > 2 * line.get_linewidth() for line in thin)
        np.testing.assert_array_equal(bold.get_xdata(), np.arange(ORDERS))
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    half = figure.subfigs[0]
    assert (half.get_suptitle(), half.get_supxlabel(), half.get_supylabel()) == ("Title", "Order", "Coefficient")
    assert legend(figure) == ["a client", "its cluster"]


def test_without_clusters_all_clients_are_in_one_panel() -> None:
    figure = findings.filters_figure([("", filters())])
    assert panels(figure) == ["All 6 clients"]
    assert len(figure.axes[0].get_lines()) == M
    assert legend(figure) == ["a client"]


def test_of_many_clusters_six_are_drawn() -> None:
    found = filters([0, 1, 2, 3, 4, 5])
    found = {name: np.concatenate([array, array]) for name, array in found.items()}
    found["structural_cluster"] = np.array([8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 1])
    figure = findings.filters_figure([("", found)], "Title")
    assert panels(figure)[:3] == ["Cluster 1 (3 clients)", "Cluster 2 (2 clients)", "Cluster 3 (1 client)"]
    assert len(panels(figure)) == 6
    assert figure.subfigs[0].get_suptitle() == "Title, the 6 largest of 9 clusters"


def test_responses_are_drawn_where_there_are_any() -> None:
    found = responses(filters([0, 0, 0, 1, 1, 1]))
    figure = findings.filters_figure([("", found)])
    half, axes = figure.subfigs[0], figure.axes[0]
    assert (half.get_supxlabel(), half.get_supylabel()) == ("Graph frequency", "Response")
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), found["frequencies"])
    np.testing.assert_array_equal(axes.get_lines()[-1].get_ydata(), found["cluster_responses"][0])


def test_filters_of_two_runs_side_by_side_share_a_scale() -> None:
    one, two = responses(filters([0, 0, 0, 1, 1, 1])), filters([0, 1, 2, 3, 3, 3])
    two["coefficients"] = two["coefficients"] * 10
    figure = findings.filters_figure([("semantic=True", one), ("semantic=False", two)], "Title")
    assert figure.get_suptitle() == "Title"
    assert [half.get_suptitle() for half in figure.subfigs] == ["semantic=True", "semantic=False"]
    # The second has no responses, so that both are drawn by their coefficients.
    assert {half.get_supxlabel() for half in figure.subfigs} == {"Order"}
    counts = [sum(axes.axison for axes in half.axes) for half in figure.subfigs]
    assert counts == [2, 4]
    assert len({axes.get_ylim() for axes in figure.axes if axes.axison}) == 1


def test_filters_that_are_not_finite_are_left_out() -> None:
    found = filters([0] * M)
    found["coefficients"][1, 2] = np.nan
    found["cluster_coefficients"][3] = np.inf
    axes = findings.filters_figure([("", found)]).axes[0]
    assert len(axes.get_lines()) == M - 1 + 1
    assert np.isfinite(axes.get_ylim()).all()
    nothing = {name: np.full_like(array, np.nan) for name, array in filters().items()}
    assert findings.filters_figure([("", nothing)]).axes[0].get_ylim() == (0, 1)


# -- class means -------------------------------------------------------------------------------------


def test_class_means_are_coloured_by_class_and_sized_by_count() -> None:
    found = means()
    figure = findings.class_means_figure([("", found)], "Title")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("t-SNE 1", "t-SNE 2")
    assert axes.get_title(loc="left") == "Title"
    assert drawn(figure) == [M * C]
    (dots,) = axes.collections
    assert len(np.unique(dots.get_facecolors(), axis=0)) == C
    counts = np.sort(found["class_counts"].ravel())[::-1]
    np.testing.assert_allclose(dots.get_sizes() / dots.get_sizes()[0], np.sqrt(counts / counts[0]))
    low, high = counts[-1], counts[0]
    assert legend(figure) == ["0", "1", "2", "3", "", f"{low} node{'s' if low > 1 else ''}", f"{high} nodes"]


def test_the_figure_says_how_far_classes_are_apart() -> None:
    both = [("a", means(0) | {"class_separation": np.array(2.345)}), ("b", means(1))]
    one, two = findings.class_means_figure(both).axes
    assert [text.get_text() for text in one.texts] == ["2.3 standard deviations between classes of a client"]
    assert not two.texts


def test_classes_a_client_lacks_and_means_that_are_not_finite_are_left_out() -> None:
    found = means()
    found["class_counts"][0, 1] = 0
    found["class_means"][0, 1] = 1e9
    found["class_counts"][:, 3] = 0
    found["class_means"][2, 2, 4] = np.nan
    figure = findings.class_means_figure([("", found)])
    assert drawn(figure) == [M * C - 1 - M - 1]
    assert legend(figure)[:3] == ["0", "1", "2"]
    assert "3" not in legend(figure)


def test_of_many_classes_twelve_are_named() -> None:
    found = means(classes=15)
    found["class_counts"][:, [2, 5, 11]] = 1
    figure = findings.class_means_figure([("", found)])
    assert legend(figure)[:13] == [str(n) for n in range(15) if n not in (2, 5, 11)] + ["other"]


def test_class_means_of_two_runs_share_a_plane() -> None:
    one, two = means(0), means(1)
    two["class_counts"][0] = 0
    figure = findings.class_means_figure([("semantic=True", one), ("semantic=False", two)], "Title")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["semantic=True", "semantic=False"]
    assert figure.get_suptitle() == "Title"
    assert drawn(figure) == [M * C, M * C - C]
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    # The same points twice lie in the same places but for what t-SNE needs to keep them apart.
    both = findings.class_means_figure([("a", one), ("b", one)])
    here, there = (np.asarray(axes.collections[0].get_offsets()) for axes in both.axes)
    assert np.abs(here - there).max() < 0.2 * np.ptp(here, axis=0).max()


@pytest.mark.parametrize("why", ["missing", "few", "alike", "narrow"])
def test_principal_components_instead(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((3 if why == "few" else 20, 1 if why == "narrow" else D))
    if why == "missing":
        monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
        assert not findings.can_tsne()
    if why == "alike":
        points[:] = points[0]
    places, name = findings.plane(points)
    assert name == "Principal component"
    assert places.shape == (len(points), 2)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(points.T)))
    expected = (points - points.mean(0)) @ vectors[:, np.argsort(-values)[:2]]
    np.testing.assert_allclose(np.abs(places)[:, : expected.shape[1]], np.abs(expected), atol=1e-9)


@pytest.mark.parametrize("count", [4, 5, 30])
def test_t_sne_of_few_points(count: int) -> None:
    points = np.random.default_rng(0).standard_normal((count, D))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        places, name = findings.plane(points)
    assert name == "t-SNE"
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    np.testing.assert_array_equal(places, findings.plane(points)[0])


def test_the_axes_say_which_plane_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    (axes,) = findings.class_means_figure([("", means())]).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Principal component 1", "Principal component 2")


def test_what_can_be_drawn() -> None:
    assert findings.has_filters(filters())
    assert not findings.has_filters(means())
    assert findings.has_class_means(means())
    assert not findings.has_class_means(filters())
    none = means() | {"class_counts": np.zeros((M, C), dtype=int)}
    assert not findings.has_class_means(none)
    with pytest.raises(FedquiltError, match="no class means"):
        findings.class_means_figure([("", none)])
