"""The files made from `RunConfig` are up to date, and `help(fedquilt.run)` shows every option."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import fedquilt
from fedquilt.runs.config import RunConfig
from fedquilt.runs.option_files import PAGE, TYPED, options_page, typed_source

tune = pytest.importorskip("fedquilt.tuning.search", reason="needs pip install 'fedquilt[tune]'").tune
REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_docs_page_and_the_typed_arguments_are_up_to_date() -> None:
    assert (REPOSITORY / PAGE).read_text() == options_page(), "run 'make options'"
    assert (REPOSITORY / TYPED).read_text() == typed_source(), "run 'make options'"


@pytest.mark.parametrize("function", [fedquilt.run, fedquilt.compare, tune], ids=["run", "compare", "tune"])
def test_help_shows_every_option_with_its_default(function: object) -> None:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    doc = inspect.getdoc(function) or ""
    for name, field in RunConfig.model_fields.items():
        if name in ("method", "dataset"):
            continue
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == field.get_default()
        assert f"\n    {name}: " in doc
    assert not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
