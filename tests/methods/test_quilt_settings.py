"""Which views can be named."""

from __future__ import annotations

import pytest

from fedquilt.methods.quilt_settings import QuiltSettings, check_views


@pytest.mark.parametrize(
    "views", ["filter", "gpr", "mlp,filter,gpr,attention,sage,private", "gcn, filter", " sage ,mlp"]
)
def test_views_are_named_with_or_without_blanks(views: str) -> None:
    assert check_views(views) == views.replace(" ", "")


@pytest.mark.parametrize(
    ("views", "fault"),
    [
        ("filter,nobody", "there is no backbone 'nobody'; choose one of: filter, gpr, attention, private, "),
        ("", "there is no backbone ''"),
        ("mlp,", "there is no backbone ''"),
        ("mlp,filter,mlp", "a view is named twice"),
        ("gpr, gpr", "a view is named twice"),
        ("views", "there is no backbone 'views'"),
    ],
)
def test_others_are_refused(views: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check_views(views)


def test_the_defaults_are_several_views_whose_gradients_are_averaged() -> None:
    settings = QuiltSettings()
    assert (settings.model, check_views(settings.views)) == ("views", "mlp,filter,gpr,attention,sage,private")
    assert (settings.average, settings.hidden, settings.lr, settings.drop) == ("gradients", 64, 0.03, True)
