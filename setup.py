"""Puts the pages of docs/ into the package, for `fedquilt docs`. All other settings of the package are in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
INTO = Path("fedquilt", "pages")


class BuildWithPages(build_py):
    """Copy the Markdown files of docs/, but those that only the site can show."""

    def run(self) -> None:
        """Build the package, then add its pages; an editable install reads docs/ itself."""
        super().run()
        if self.editable_mode:
            return
        shutil.rmtree(Path(self.build_lib) / INTO, ignore_errors=True)
        for page in sorted((HERE / "docs").rglob("*.md")):
            name = page.relative_to(HERE / "docs")
            if not name.match("results/studies/*/*") and name.parts[0] != "reference":
                target = Path(self.build_lib) / INTO / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(page, target)


setup(cmdclass={"build_py": BuildWithPages})
