"""What must not be in the source is found, however it is written; what is like it and harmless is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedquilt
from fuzz.static import forbidden, main


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import torch\ntorch.load(path)  # noqa",
        "from torch import load",
        "load = torch.load",
        "eval('1')",
        "exec(text)",
        "__import__('os')",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import yaml\nyaml.load(text, yaml.SafeLoader)",
        "import yaml\nyaml.unsafe_load(text)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import numpy as np\nnp.load(path)",
        "import httpx\nhttpx.get(address, verify=False)",
        "import dill.settings",
        "import tempfile\ntempfile.mktemp()",
    ],
)
def test_what_must_not_be_there_is_found(text: str) -> None:
    assert list(forbidden(text))


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "import yaml\nyaml.safe_load(text)",
        "model.eval()",
        "re.compile(pattern)",
        "subprocess.run(['ls'], shell=False)",
        "'pickle.loads is a name in a text'",
        "dataset.load(path)",
    ],
)
def test_what_is_harmless_is_not(text: str) -> None:
    assert list(forbidden(text)) == []


def test_the_package_has_none_of_it() -> None:
    assert main([str(Path(fedquilt.__file__).parent)]) == 0


def test_an_exception_is_of_one_module_and_one_thing(tmp_path: Path) -> None:
    for name, text in (("raw_checks.py", "import pickle"), ("other.py", "import pickle")):
        (tmp_path / "datasets").mkdir(exist_ok=True)
        (tmp_path / "datasets" / name).write_text(text)
    assert main([str(tmp_path)]) == 1
    (tmp_path / "datasets" / "other.py").unlink()
    assert main([str(tmp_path)]) == 0
    (tmp_path / "datasets" / "raw_checks.py").write_text("import pickle\neval('1')")
    assert main([str(tmp_path)]) == 1


def test_a_folder_without_modules_is_not_passed(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2
