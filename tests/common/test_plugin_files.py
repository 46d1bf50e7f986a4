from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fedquilt.common.plugin_files import PLUGINS, execute, is_known, read_plugin, remember
from fedquilt.errors import FedquiltError

pytestmark = pytest.mark.usefixtures("no_plugins")


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_plugin_is_executed_as_a_module_of_its_own(tmp_path: Path) -> None:
    module = execute(read_plugin(written(tmp_path, "import math\nNUMBER = math.floor(2.5)\n")))
    assert module.NUMBER == 2
    assert sys.modules[module.__name__] is module
    assert module.__file__ == str(tmp_path / "mine.py")
    del sys.modules[module.__name__]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1\nundefined\n", "line 2: NameError: name 'undefined' is not defined."),
        ("def f(:\n", "line 1: SyntaxError: "),
        ("import no_such_package\n", "line 1: ModuleNotFoundError: No module named 'no_such_package'."),
        ("def f():\n    1 / 0\n\nf()\n", "line 2: ZeroDivisionError: division by zero."),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3."),
    ],
)
def test_what_goes_wrong_in_it_is_one_sentence_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    file = read_plugin(written(tmp_path, text))
    with pytest.raises(FedquiltError) as error:
        execute(file)
    assert str(error.value).startswith(f"The plug-in {tmp_path / 'mine.py'} cannot be loaded: {reason.rstrip('.')}")
    assert file.module not in sys.modules


def test_only_python_files_that_are_there_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match=r"is no Python file; give one whose name ends in \.py"):
        read_plugin(written(tmp_path, "", "mine.txt"))
    with pytest.raises(FedquiltError, match=r"none\.py cannot be read: No such file or directory; give its path"):
        read_plugin(tmp_path / "none.py")


def test_a_file_is_known_by_its_path_and_its_content(tmp_path: Path) -> None:
    file = read_plugin(written(tmp_path, "a = 1\n"))
    assert not is_known(file)
    remember(file)
    remember(file)
    assert is_known(file)
    assert os.environ[PLUGINS] == str(file.path)
    assert not is_known(read_plugin(written(tmp_path, "a = 2\n")))
    assert not is_known(read_plugin(written(tmp_path, "a = 1\n", "copy.py")))


def test_a_home_that_cannot_be_written_makes_nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    file = read_plugin(written(tmp_path, "a = 1\n"))
    remember(file)
    assert not is_known(file)
    assert os.environ[PLUGINS] == str(file.path)


def test_a_damaged_store_makes_nothing_known(tmp_path: Path) -> None:
    file = read_plugin(written(tmp_path, "a = 1\n"))
    remember(file)
    (tmp_path / "state" / "fedquilt" / "plugins.json").write_text("{")
    assert not is_known(file)
