"""docs/federation.md as a reader would do it: the commands of "Two machines", in their order, word for word but for places."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fedquilt.federation.local.processes import ProcessGroup
from fedquilt.federation.local.rehearsal import FLOWER_ENVIRONMENT, free_ports
from support.federations import ragged_clients
from support.flower_doubles import write_open_sites

pytestmark = pytest.mark.e2e
DOCUMENT = Path(__file__).parents[2] / "docs" / "federation.md"
needed = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "openssl", "ssh-keygen"))), reason="needs bash, openssl and ssh-keygen"
)


def commands() -> list[str]:
    """The indented blocks of the section, and the command in its running text."""
    section = DOCUMENT.read_text().split("## Two machines")[1].split("\n## ")[0]
    found = re.findall(r"((?:^    .*\n|^\n(?=    ))+)|`(flwr supernode register[^`]*)`", section, re.MULTILINE)
    return [textwrap.dedent(block).strip() or inline for block, inline in found]


@needed
def test_every_command_of_the_walk_through_works(tmp_path: Path) -> None:
    certificates, superlink_and_names, once, register, node, train, predict = commands()
    superlink, names = re.split(r"\n\n(?=\[superlink\])", superlink_and_names)
    port, *node_ports = free_ports(3)
    machines = {name: tmp_path / name for name in ("coordinator", "a", "b")}
    for each in machines.values():
        (each / ".flwr").mkdir(parents=True)
    beside = str(Path(sys.executable).parent)
    usual = {**FLOWER_ENVIRONMENT, **os.environ, "PATH": beside + os.pathsep + os.environ["PATH"]}

    def at(name: str, text: str) -> str:
        """The text for this machine, on which all of them are."""
        home = str(machines[name])
        places = {"coordinator.example": "localhost", ":8000": f":{port}", "--port 8000": f"--port {port}"}
        for said, meant in {**places, "/path/to": home, "0.0.0.0": "127.0.0.1"}.items():
            text = text.replace(said, meant)
        return text

    def do(name: str, text: str) -> str:
        env = {**usual, "FLWR_HOME": str(machines[name] / ".flwr")}
        done = subprocess.run(
            ["bash", "-ec", at(name, text)], cwd=machines[name], env=env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, (text, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    do("coordinator", certificates)
    assert (machines["coordinator"] / "ca.key").stat().st_mode & 0o077 == 0
    (machines["coordinator"] / ".flwr" / "config.toml").write_text(at("coordinator", names))
    made = write_open_sites(tmp_path / "made", ragged_clients((25, 31)))
    with ProcessGroup(tmp_path / "logs") as group:

        def stay(name: str, text: str, more: str = "") -> None:
            env = {**usual, "FLWR_HOME": str(machines[name] / ".flwr")}
            group.start(name, ["bash", "-ec", f"cd {machines[name]}\n{at(name, text)}{more}"], env)

        stay("coordinator", superlink)
        for name, site in zip("ab", made, strict=True):
            shutil.copytree(site.parent, machines[name], dirs_exist_ok=True)
            shutil.copy(machines["coordinator"] / "ca.crt", machines[name])
            assert "is ready" in do(name, once)
            shutil.copy(machines[name] / "node-key.pub", machines["coordinator"] / f"{name}.pub")
        for name, node_port in zip("ab", node_ports, strict=True):
            do("coordinator", register.replace("a.pub", f"{name}.pub"))
            stay(name, node, f" --port {node_port}")
        assert "fedquilt: done" in do("coordinator", train.replace("rounds=30", "rounds=2"))
    assert (machines["coordinator"] / "run" / "result.json").is_file()
    do("a", predict)
    assert (machines["a"] / "predictions.csv").read_text().startswith("id,class,p_0")
