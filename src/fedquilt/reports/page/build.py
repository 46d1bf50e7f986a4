"""Write a page as one HTML file: template, style, scripts and data."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from fedquilt.common.files import write_text
from fedquilt.reports.page.data import Page
from fedquilt.reports.page.markup import escape, facts_markup, notes_markup, table_markup
from fedquilt.reports.page.payload import payload

# In the order in which they use each other.
_SCRIPTS = (
    "core",
    "dom",
    "charts",
    "convergence",
    "similarity",
    "clients",
    "views",
    "stacks",
    "partition",
    "settings",
    "main",
)
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def write_page(page: Page, path: Path) -> None:
    """Write the page to `path`, atomically."""
    write_text(Path(path), page_html(page))


def page_html(page: Page) -> str:
    """The page as one HTML document that needs no other file and no network."""
    scripts = "\n".join(_asset(f"js/{name}.js") for name in _SCRIPTS)
    parts = {
        "title": escape(page.title),
        "lead": f'<p class="lead">{escape(page.lead)}</p>' if page.lead else "",
        "about": f'<p class="caption about">{escape(page.about)}</p>' if page.about else "",
        "notes": notes_markup(page.notes),
        "tables": "".join(table_markup(table, number) for number, table in enumerate(page.tables)),
        "facts": facts_markup(page.facts),
        "version": escape(_version()),
        "style": _asset("page.css"),
        "data": payload(page),
        "echarts": _asset("echarts.min.js") if page.runs else "",
        "script": scripts,
    }
    # In one pass, so that inserted text is not searched for placeholders.
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return (files("fedquilt.reports.page") / "assets" / name).read_text(encoding="utf-8")


def _version() -> str:
    from fedquilt.common.version import VERSION

    return VERSION
