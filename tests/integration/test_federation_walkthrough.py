"""docs/federation.md as a reader would do it: the commands of "Two machines" and the checklist, word for word but for places.

Site a connects to the proxy, site b through its relay to a proxy that asks for certificates.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fedquilt.federation.local.processes import ProcessGroup
from fedquilt.federation.local.rehearsal import CONNECTED, FLOWER_ENVIRONMENT, free_ports
from fedquilt.federation.nginx.config_files import find_nginx
from support.federations import ragged_clients
from support.flower_doubles import write_open_sites
from support.nginx import needs_nginx
from support.rehearsals import until

DOCUMENT = Path(__file__).parents[2] / "docs" / "federation.md"
TOOLS = ("bash", "openssl", "ssh-keygen", "curl", "ss")
pytestmark = [
    pytest.mark.e2e,
    needs_nginx,
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}"),
]


def section(title: str) -> str:
    return DOCUMENT.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands() -> list[str]:
    """The indented blocks of "Two machines", parted where a line is empty, and the command in its running text."""
    found = re.findall(
        r"((?:^    .*\n|^\n(?=    ))+)|`(flwr supernode register[^`]*)`", section("Two machines"), re.MULTILINE
    )
    parts = [textwrap.dedent(block).strip() or inline for block, inline in found]
    # The file for flwr has an empty line of its own.
    return [part for block in parts for part in re.split(r"\n\n(?!\[superlink\.)", block)]


def checks() -> list[str]:
    """The commands in the checklist that a reader can run: whole ones, with what they work on."""
    inline = [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", section("Who can do what").split("### ")[1])]
    return [text for text in inline if re.match(r"(curl|ssh-keygen|mv|ss) ", text)]


class Machines:
    """Three machines, all of which are this one: a folder each, and ports of their own."""

    def __init__(self, folder: Path) -> None:
        self.folders = {name: folder / name for name in ("coordinator", "a", "b")}
        for each in self.folders.values():
            (each / ".flwr").mkdir(parents=True)
        self.public, self.asking, self.superlink, self.relay, *self.nodes = free_ports(6)
        beside = str(Path(sys.executable).parent)
        self.env = {**FLOWER_ENVIRONMENT, **os.environ, "PATH": beside + os.pathsep + os.environ["PATH"]}
        self.group = ProcessGroup(folder / "logs")

    def at(self, name: str, text: str) -> str:
        """The text for a machine."""
        # Site b and the second proxy have the port of the one that asks.
        public = self.asking if name == "b" or " asking " in text else self.public
        places = {"8000": public, "8001": self.superlink, "8002": self.relay, "coordinator.example": "localhost"}
        places |= {"/path/to": self.folders[name], "0.0.0.0": "127.0.0.1", "/usr/sbin/nginx": find_nginx()}
        for said, meant in places.items():
            text = text.replace(said, str(meant))
        return text

    def environment(self, name: str) -> dict[str, str]:
        return {**self.env, "FLWR_HOME": str(self.folders[name] / ".flwr")}

    def do(self, name: str, text: str) -> str:
        """Run commands at a machine; returns what they print."""
        command = ["bash", "-ec", self.at(name, text)]
        done = subprocess.run(
            command, cwd=self.folders[name], env=self.environment(name), capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, (text, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def stay(self, name: str, text: str, more: str = "", called: str | None = None) -> None:
        """Start commands at a machine that go on."""
        script = f"cd {self.folders[name]}\n{self.at(name, text)}{more}"
        self.group.start(called or name, ["bash", "-ec", script], self.environment(name))

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            with self.group:
                yield
        finally:  # nginx overwrites its environment, by which the group would find it
            for file in self.folders["coordinator"].parent.glob("*/*/nginx.pid"):
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int(file.read_text()), signal.SIGTERM)


def test_every_command_of_the_walk_through_works(tmp_path: Path) -> None:
    written = commands()
    certificates, superlink, names, proxy, start_proxy, once, register, node, train, predict = written[:10]
    request, sign, asking, start_asking, relay, start_relay, relayed = written[10:]
    machines = Machines(tmp_path)
    coordinator, a, b = machines.folders.values()
    machines.do("coordinator", certificates)
    assert (coordinator / "ca.key").stat().st_mode & 0o077 == 0
    (coordinator / ".flwr" / "config.toml").write_text(machines.at("coordinator", names))
    made = write_open_sites(tmp_path / "made", ragged_clients((25, 31)))
    with machines.running():
        machines.stay("coordinator", superlink)
        for write, start in ((proxy, start_proxy), (asking, start_asking)):
            assert start in machines.do("coordinator", write).replace(str(find_nginx()), "/usr/sbin/nginx")
            machines.stay("coordinator", start, called=start.split()[4])
        for name, site in zip("ab", made, strict=True):
            shutil.copytree(site.parent, machines.folders[name], dirs_exist_ok=True)
            shutil.copy(coordinator / "ca.crt", machines.folders[name])
            assert "is ready" in machines.do(name, once)
            shutil.copy(machines.folders[name] / "node-key.pub", coordinator / f"{name}.pub")
        machines.do("b", request)
        shutil.copy(b / "site.csr", coordinator)
        machines.do("coordinator", sign)
        shutil.copy(coordinator / "site.pem", b)
        machines.do("b", relay)
        machines.stay("b", start_relay, called="relay")
        until(lambda: "Uvicorn running" in machines.group.output("coordinator", 10**6), 60, "the SuperLink is there")
        for name in "ab":
            machines.do("coordinator", register.replace("a.pub", f"{name}.pub"))
        machines.stay("a", node, f" --port {machines.nodes[0]}")
        machines.stay("b", relayed, f" --port {machines.nodes[1]}")
        for name in "ab":
            until(lambda name=name: CONNECTED in machines.group.output(name, 10**6), 60, f"site {name} is let in")
        assert "fedquilt: done" in machines.do("coordinator", train.replace("rounds=30", "rounds=2"))
        listening, stranger, fingerprint, rotate = checks()
        assert "Only SuperNodes are served here." in machines.do("coordinator", stranger)
        assert "ECDSA" in machines.do("coordinator", fingerprint)
        shown = machines.do("coordinator", listening)
        assert re.findall(rf"\S+:{machines.superlink}\b", shown) == [f"127.0.0.1:{machines.superlink}"]
        log = coordinator / "proxy" / "logs" / "access.log"
        machines.do("coordinator", rotate)
        until(log.exists, 10, "nginx has opened a new log")
        calls = [(coordinator / each / "logs" / "access.log").read_text() for each in ("proxy", "asking")]
        calls[0] = log.with_suffix(".log.1").read_text()
    # Each site came by its own way, and only SuperNodes' calls were answered.
    for text in calls:
        assert re.search(r'"POST /v1/fleet/push-object HTTP/1.1" 200', text)
    assert " 403 " in calls[0]
    assert (coordinator / "run" / "result.json").is_file()
    machines.do("a", predict)
    assert (a / "predictions.csv").read_text().startswith("id,class,p_0")
