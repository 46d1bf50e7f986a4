"""For MkDocs: the pages that live beside docs/ (README.md and others) become pages of the site, with their links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# The files at the top of the repository, and what they are called in the site.
BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
_LINK = re.compile(r"(\]\()([^)\s#]+)")
# What a browser fetches by itself, from another host; a link that a reader clicks, and the page's own address, are none of it.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|link(?! rel=\"?canonical))\b[^>]*?(?:src|href)=\"?((?:https?:)?//[^\" >]+)"
)


def from_root(text: str) -> str:
    """Links of a file at the top of the repository, as they are from docs/: docs/data.md becomes data.md."""

    def inside(match: re.Match[str]) -> str:
        target = match[2]
        return match[1] + (BESIDE.get(target) or target.removeprefix("docs/"))

    return _LINK.sub(inside, text)


def to_root(text: str, page: str) -> str:
    """Links of a page in docs/ to the files beside docs/: ../SECURITY.md becomes SECURITY.md."""
    depth = page.count("/")

    def inside(match: re.Match[str]) -> str:
        outside = "../" * (depth + 1)
        name = match[2].removeprefix(outside)
        return match[1] + ("../" * depth + BESIDE[name] if match[2] == outside + name and name in BESIDE else match[2])

    return _LINK.sub(inside, text)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that live beside docs/."""
    for name, page in BESIDE.items():
        text = from_root((ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links that leave docs/ to the pages of the site."""
    return to_root(markdown, page.file.src_uri)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """End the build where a page would make a reader's browser fetch something from another host."""
    if found := fetched(output):
        raise PluginError(
            f"{page.file.src_uri} makes browsers fetch {found[0]}; the site has to work without the internet."
        )
    return output


def fetched(html: str) -> list[str]:
    """The addresses of other hosts that a page fetches from: scripts, styles, pictures."""
    return _FETCHED.findall(html)
