"""Write the badges of the README from pyproject.toml, so that no page has to fetch them. Run: python docs/images/badges.py"""

from __future__ import annotations

import tomllib
from pathlib import Path

HERE = Path(__file__).parent
GREY, BLUE = "#555555", "#0067a3"
PER_LETTER = 6.6  # pixels of Verdana at 11


def badges() -> dict[str, str]:
    """The badges' files by name."""
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = {"version": project["version"], "python": project["requires-python"], "licence": project["license"]}
    return {f"badge-{name}.svg": badge(name, value) for name, value in facts.items()}


def badge(name: str, value: str) -> str:
    """Two words side by side, grey and blue."""
    left, right = (round(PER_LETTER * len(text) + 12) for text in (name, value))
    shown = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">
<title>{name} {shown}</title>
<rect width="{left + right}" height="20" rx="3" fill="{BLUE}"/>
<path d="M3 0h{left - 3}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="{GREY}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2:g}" y="14">{name}</text>
<text x="{left + right / 2:g}" y="14">{shown}</text>
</g>
</svg>
"""


def main() -> None:
    """Write them beside this file."""
    for name, text in badges().items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
