from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

import fedquilt
from fedquilt.cli import main
from support.cli import environment

COMMANDS = [
    "demo",
    "run",
    "compare",
    "resume",
    "show",
    "study",
    "report",
    "tune",
    "bench",
    "methods",
    "datasets",
    "partition",
    "graph",
    "graph check",
    "site",
    "site check",
    "federation",
    "federation proxy",
    "federation relay",
    "predict",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(call: Callable, command: str) -> None:
    called = call(f"{command} --help")
    assert called.status == 0
    assert "For example" in called.out
    assert f"fedquilt {command}" in called.out
    assert called.err == ""


def test_help_names_each_command_and_so_does_no_argument(call: Callable) -> None:
    called = call("--help")
    assert called.status == 0
    assert all(command.split()[0] in called.out for command in COMMANDS)
    assert call("").out == called.out


def test_version(call: Callable) -> None:
    assert call("--version").out == f"fedquilt {fedquilt.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from fedquilt.cli import main\n"
        "for line in (['--help'], ['run', '--help'], ['bench', '--help'], ['--version'], ['rnu']): main(line)\n"
        "main(['predict', '--help']), main(['site', 'check', '--help'])\n"
        "heavy = {'torch', 'matplotlib', 'numpy', 'scipy', 'fedquilt.api'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run --metod fedpub", "There is no option '--metod'; did you mean '--method'?"),
        ("rnu", "There is no command 'rnu'; did you mean 'run'?"),
        ("graph chekc x", "There is no command 'chekc'; did you mean 'check'?"),
        ("show", "Missing argument 'DIR'; see 'fedquilt show --help'."),
        ("run --xyzzy 3", "There is no option '--xyzzy'; see 'fedquilt run --help'."),
    ],
)
def test_wrong_usage_is_one_sentence(refused: Callable, line: str, says: str) -> None:
    assert refused(line) == says


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("show a b", "(b); see 'fedquilt show --help'."),
        ("run quilt", "(quilt); name a method with --method and a graph with --dataset; see 'fedquilt run --help'."),
        ("compare local quilt", "(local quilt); name methods with --methods and a graph with --dataset; see"),
        ("run --clients-from a b", "(b); a pattern after --clients-from, such as 'hospital-*/', needs quotes; see"),
    ],
)
def test_an_argument_too_many_is_one_sentence(refused: Callable, line: str, says: str) -> None:
    assert re.sub("^Got unexpected extra arguments? ", "", refused(line)).startswith(says)


@pytest.mark.parametrize("line", ["run --rounds many", "run --participation half"])
def test_a_value_of_the_wrong_type_names_the_option(refused: Callable, line: str) -> None:
    assert line.split()[1] in refused(line)


@pytest.mark.parametrize("line", ["--debug show nothing", "show nothing --debug"])
def test_debug_before_or_after_the_command_shows_the_traceback(call: Callable, line: str) -> None:
    called = call(line)
    assert called.status == 2
    assert "Traceback" in called.err
    assert called.err.endswith("fedquilt: There is no run folder at nothing.\n")


def test_a_defect_is_one_line_that_asks_for_a_report(call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr("fedquilt.datasets.check.check_graph", broken)
    called = call("graph check x")
    assert called.status == 1
    assert called.sentence.startswith("something went wrong inside: KeyError")
    assert "--debug" in called.sentence
    assert "Traceback" in call("graph check x --debug").err


def test_ctrl_c_outside_training_is_one_line(call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedquilt.datasets.check.check_graph", stopped)
    called = call("graph check x")
    assert called.status == 130
    assert called.sentence == "stopped."


def test_main_reads_the_process_arguments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fedquilt", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("fedquilt ")
