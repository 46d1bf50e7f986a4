"""One version, in the package and in its metadata."""

from __future__ import annotations

import tomllib
from pathlib import Path

import fedquilt
from fedquilt.common.version import VERSION


def test_the_package_and_the_project_file_have_the_same_version() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert fedquilt.__version__ == VERSION == project["project"]["version"]
