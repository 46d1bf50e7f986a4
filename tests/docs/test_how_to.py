"""The Python of the start and how-to pages runs as it stands there, and Slurm's script is sound."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.pages import ROOT, python_blocks

PAGES = [ROOT / "docs" / "start.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
WITH_PYTHON = [page for page in PAGES if python_blocks(page)]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page: Path) -> None:
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), {})


def test_the_job_script_is_sound_shell(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "slurm.md").read_text(encoding="utf-8")
    script = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert script is not None
    assert subprocess.run(["bash", "-n"], input=script[1], text=True, capture_output=True).stderr == ""
