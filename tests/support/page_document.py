"""Read an HTML report as a browser would: its elements, the text a reader sees, and the data of its charts."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import numpy as np

from fedquilt.reports.page.build import page_html
from fedquilt.reports.page.data import Page

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
