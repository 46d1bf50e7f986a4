"""What the site and the package say of each other: navigation, addresses, versions, and what a wheel holds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import fedquilt
from support.pages import ROOT, hook

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def site() -> dict:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def listed(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [page for child in children for page in listed(child)]  # type: ignore[attr-defined]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = listed(site()["nav"])
    assert len(pages) == len(set(pages))
    made = {"reference/cli.md", *hook("pages").BESIDE.values()}
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(pages) == there | made


def test_a_broken_link_or_anchor_ends_the_build_and_nothing_is_fetched() -> None:
    config = site()
    assert config["strict"] is True
    assert set(config["validation"]["links"].values()) == {"warn"}
    assert {"not_found", "anchors", "absolute_links", "unrecognized_links"} == set(config["validation"]["links"])
    assert config["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript"} & set(config)
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    # With --quiet MkDocs does not count warnings, and a broken link passes.
    assert "mkdocs build --strict\n" in make
    assert "\nmake docs\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_links_between_docs_and_the_files_beside_it_lead_to_pages() -> None:
    pages = hook("pages")
    assert pages.from_root("[a](docs/data.md#limits) [b](SECURITY.md)") == "[a](data.md#limits) [b](SECURITY.md)"
    assert pages.from_root("![i](docs/images/x.svg) [r](README.md)") == "![i](images/x.svg) [r](index.md)"
    assert pages.to_root("[a](../SECURITY.md) [b](data.md)", "sites.md") == "[a](SECURITY.md) [b](data.md)"
    assert pages.to_root("[a](../../CONTRIBUTING.md#x)", "how-to/a.md") == "[a](../CONTRIBUTING.md#x)"
    assert pages.to_root("[a](../data.md)", "how-to/a.md") == "[a](../data.md)"


def test_a_page_that_fetches_from_another_host_ends_the_build() -> None:
    pages = hook("pages")
    assert pages.fetched('<script src="https://cdn.example/x.js"></script>') == ["https://cdn.example/x.js"]
    assert pages.fetched('<link rel="stylesheet" href="//fonts.example/a.css">') == ["//fonts.example/a.css"]
    own = '<link rel="canonical" href="https://a.example/"><a href="https://b.example/">b</a><img src="images/x.png">'
    assert pages.fetched(own) == []


def test_addresses_and_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == PROJECT["version"] == fedquilt.__version__
    assert citation["license"] == PROJECT["license"]
    address = PROJECT["urls"]["Documentation"]
    assert citation["url"] == site()["site_url"] == address
    assert all(url.startswith(address) for url in PROJECT["urls"].values())
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert PROJECT["version"] in headings


def test_badges_are_files_and_say_what_the_package_does() -> None:
    spec = importlib.util.spec_from_file_location("badges", ROOT / "docs" / "images" / "badges.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in module.badges().items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == text, "python docs/images/badges.py"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not re.search(r"!\[[^]]*\]\(https?:", readme)
    assert all(name in readme for name in module.badges())


def test_the_demo_installs_what_fedquilt_needs_and_development_comes_on_top() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo: \$\(CORE\)", make, re.MULTILINE)
    assert re.search(r"^test: install", make, re.MULTILINE)
    core, development = (
        re.search(r"^\$\(CORE\):.*?(?=^\$\(STAMP\):)", make, re.M | re.S),
        make.partition("$(STAMP): $(CORE)")[2],
    )
    assert core is not None
    assert "$(PIP) -e .\n" in core[0]
    assert "[dev]" not in core[0]
    assert "-e '.[dev]'" in development
    assert "--quiet" not in make.partition("demo: $(CORE)")[0]  # an install shows what it does


def test_a_wheel_holds_the_pages_and_the_files_of_a_site(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "lib")]
    command += ["egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    package = tmp_path / "lib" / "fedquilt"
    assert (package / "pages" / "data.md").read_text() == (ROOT / "docs" / "data.md").read_text()
    for name in ("pages/how-to/slurm.md", "pages/tutorials/compare.md", "federation/deploy/fedquilt-site.service"):
        assert (package / name).is_file(), name
    assert (package / "federation" / "deploy" / "Containerfile").is_file()
    assert not (package / "pages" / "reference").exists()
