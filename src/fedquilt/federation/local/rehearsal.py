"""A whole federation on this machine, with Flower's own processes, TLS and node keys; nothing of it is left running."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedquilt.errors import FedquiltError
from fedquilt.federation.local.keys import make_certificates, make_node_key
from fedquilt.federation.local.processes import Group

HOST, CONNECTION = "127.0.0.1", "rehearsal"
START_SECONDS = 90.0
LET_IN_SECONDS = 180.0
# How Flower says that a key is registered, and that a node which it has not seen leave is to wait (a minute at most).
REGISTERED, NOT_YET = "already in use", "Failed to activate SuperNode"
INSIDE = "SuperNode ID"
AGAIN_SECONDS = 4.0  # before such a node tries again
# A socket's name has 103 bytes where it may have fewest; below the temporary folder, that of `warm` has up to 43.
LONGEST_TEMPORARY = 60
# What Flower's processes are told unless the user's environment says otherwise: no reports to its makers, no waiting about.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "PYTHONUNBUFFERED": "1",
}
_SAID = re.compile(r"fedquilt: (.*)")


def app_folder() -> Path:
    """The Flower app that `flwr run` is given."""
    return Path(__file__).parent.parent / "app"


class Rehearsal:
    """SuperLink, a SuperNode a site, and runs; use it in a `with` block.

    Args:
        sites: their site.yaml files.
        logs: a folder for what the processes say.
        differences: how some sites are to be started, by their places; see `start_site`.
        private: a folder that outlives a stop, for node keys and the SuperLink's database: with them, sites are the nodes that
            they were. It is removed when a run has its result. None: nothing outlives.
    """

    def __init__(
        self,
        sites: Sequence[Path],
        logs: Path,
        differences: Mapping[int, dict[str, Any]] | None = None,
        private: Path | None = None,
    ) -> None:
        self.sites = [Path(site).resolve() for site in sites]
        self.differences = differences or {}
        self.folder = Path(tempfile.mkdtemp(prefix="fedquilt-rehearsal-"))
        self.private = self.folder / "private" if private is None else private.resolve()
        self.again = self._database.exists()
        self.over = False
        self._begun: dict[int, int] = {}  # where in its log what a site's process says begins
        self.group = Group(logs, self.folder)
        self.port, *self.node_ports = free_ports(1 + len(self.sites))

    def __enter__(self) -> Rehearsal:
        try:
            self._prepare()
            self.start_superlink()
            self._register([self._key(n).with_name(f"node-{n}.pub") for n in range(len(self.sites))])
            for n in range(len(self.sites)):
                self.start_site(n, **self.differences.get(n, {}))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # The coordinator first, as to it sites that leave are sites that fail. Then the sites, while there is a SuperLink
            # that they can tell so: else it keeps their places for a minute.
            self.group.kill_started("superlink", "flwr-serverapp")
            self.group.end([name for name in self.site_names if name in self.group.running])
        finally:
            self.group.__exit__()
            if self.over:
                shutil.rmtree(self.private, ignore_errors=True)

    def _prepare(self) -> None:
        make_certificates(self.folder / "certificates", HOST)  # new ones each time: nobody is known by them
        self.private.mkdir(parents=True, exist_ok=True)
        self.private.chmod(0o700)
        for n in range(len(self.sites)):
            self._make_key(n)
        home = self.folder / "coordinator"
        home.mkdir()
        connection = {"address": f"{HOST}:{self.port}", "root-certificates": str(self._certificate("ca.crt"))}
        lines = [f"{key} = {json.dumps(value)}" for key, value in connection.items()]
        (home / "config.toml").write_text(
            "\n".join(["[superlink]", f'default = "{CONNECTION}"', f"[superlink.{CONNECTION}]", *lines, ""])
        )

    def _make_key(self, n: int) -> None:
        """A node key, unless there is one; a half-written one never has its name."""
        key = self._key(n)
        if key.exists() and key.with_name(f"{key.name}.pub").exists():
            return
        made = make_node_key(self.private / "new" / key.name)
        key.parent.mkdir(mode=0o700, exist_ok=True)
        for name in (key.name, made.name):
            os.replace(made.with_name(name), key.with_name(name))
        shutil.rmtree(made.parent)

    def _key(self, n: int) -> Path:
        return self.private / "keys" / f"node-{n}"

    @property
    def _database(self) -> Path:
        return self.private / "superlink.db"

    def _certificate(self, name: str) -> Path:
        return self.folder / "certificates" / name

    def start_superlink(self) -> None:
        """Start the SuperLink, and wait until it answers; its database outlives it."""
        command = [
            tool("flower-superlink"),
            *("--ssl-ca-certfile", str(self._certificate("ca.crt"))),
            *("--ssl-certfile", str(self._certificate("server.pem"))),
            *("--ssl-keyfile", str(self._certificate("server.key"))),
            "--enable-supernode-auth",
            *("--database", str(self._database)),
            "--disable-runtime-dependency-installation",
            *("--host", HOST, "--port", str(self.port)),
        ]
        process = self.group.start("superlink", command, self._env("coordinator"))
        until = time.monotonic() + START_SECONDS
        while not _answers(self.port):
            if process.poll() is not None or time.monotonic() > until:
                raise FedquiltError(f"Flower's SuperLink did not start; it said: {self.group.said('superlink', 600)}")
            time.sleep(0.2)

    def start_site(
        self,
        n: int,
        key: Path | None = None,
        certificate: Path | None = None,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a site's SuperNode: with its own key, the right certificate and the SuperLink's port unless told otherwise."""
        command = [
            tool("flower-supernode"),
            *("--superlink", f"{HOST}:{port or self.port}"),
            *("--root-certificates", str(certificate or self._certificate("ca.crt"))),
            *("--auth-supernode-private-key", str(key or self._key(n))),
            *("--host", HOST, "--port", str(self.node_ports[n])),
            *("--node-config", f"site={json.dumps(str(self.sites[n]))}"),
        ]
        self._begun[n] = self.group.size(self.site_name(n))
        self.group.start(self.site_name(n), command, {**self._env(f"site-{n}"), **(env or {})})

    @property
    def site_names(self) -> list[str]:
        """What the sites' processes are called."""
        return [self.site_name(n) for n in range(len(self.sites))]

    def site_name(self, n: int) -> str:
        """What a site's process, and its log, is called."""
        return f"site-{n}"

    def _register(self, keys: Sequence[Path]) -> None:
        """Register node keys at the SuperLink, as its operator would; those that are registered stay the nodes they are."""
        asked, env = [], self._env("coordinator")
        for key in keys:
            name, command = f"register-{key.stem}", [tool("flwr"), "supernode", "register", str(key), CONNECTION]
            asked.append((name, self.group.size(name), self.group.start(name, command, env)))
        for name, start, process in asked:
            if process.wait(START_SECONDS) != 0 and REGISTERED not in (said := self.group.said(name, 600, start)):
                raise FedquiltError(f"A node key was not registered: {said}")

    def start_run(self, order: Mapping[str, Any], name: str = "run") -> subprocess.Popen[bytes]:
        """`flwr run` with a run config; the process ends when the run does, and its log has what the coordinator says."""
        config = self.folder / f"{name}.toml"
        told = {**order, "settings": json.dumps(order.get("settings", {}))}
        config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items()))
        command = [tool("flwr"), "run", str(app_folder()), CONNECTION, "--stream", "--run-config", str(config)]
        return self.group.start(name, command, self._env("coordinator"))

    def run(self, order: Mapping[str, Any], say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
        """Train, and give what result.json says; `say` is called with each line of progress."""
        if self.again:
            self._let_in(say)
        start = self.group.size("run")
        process, told = self.start_run(order), 0
        while True:
            over = process.poll() is not None
            said = self.group.said("run", 10**7, start)
            lines = _SAID.findall(said if over else said[: said.rfind("\n") + 1])
            for line in lines[told:]:
                say(line)
            told = len(lines)
            if over:
                break
            self._check_alive(["superlink", *self.site_names])
            time.sleep(0.5)
        result = Path(str(order["out"])) / "result.json"
        if not result.is_file():
            wrong = lines[-1] if lines else self.group.said("run", 600, start)
            raise FedquiltError(f"The rehearsal did not end well: {wrong}")
        self.over = True
        read: dict[str, Any] = json.loads(result.read_bytes())
        return read

    def _let_in(self, say: Callable[[str], None]) -> None:
        """Wait until all sites are let in; one that was killed has to come again until Flower sees that it was gone."""
        until, told = time.monotonic() + LET_IN_SECONDS, False
        while outside := [n for n in range(len(self.sites)) if INSIDE not in self._site_said(n)]:
            if time.monotonic() > until:
                name = self.site_name(outside[0])
                raise FedquiltError(f"The process '{name}' was not let in; it said: {self.group.said(name, 600)}")
            ended = [n for n in outside if self.group.running[self.site_name(n)].poll() is not None]
            turned_down = [n for n in ended if NOT_YET in self._site_said(n)]
            self._check_alive(["superlink", *(self.site_name(n) for n in set(ended) - set(turned_down))])
            if turned_down and not told:
                say("Flower lets sites that were killed in again after up to a minute; waiting ...")
                told = True
            time.sleep(AGAIN_SECONDS if turned_down else 0.2)
            for n in turned_down:
                self.group.end([self.site_name(n)])
                self.start_site(n, **self.differences.get(n, {}))

    def _site_said(self, n: int) -> str:
        """What a site's process has said since it was last started."""
        return self.group.said(self.site_name(n), 10**7, self._begun[n])

    def _check_alive(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self.group.running and self.group.running[name].poll() is not None:
                raise FedquiltError(f"The process '{name}' ended by itself; it said: {self.group.said(name, 600)}")

    def _env(self, who: str) -> dict[str, str]:
        """Each party has a home of its own, as on a machine of its own; nothing is reported to Flower's makers."""
        home = self.folder / who
        home.mkdir(exist_ok=True)
        beside = str(Path(sys.executable).parent)  # Flower starts its helpers by their names
        ours = {"PATH": beside + os.pathsep + os.environ.get("PATH", ""), "FLWR_HOME": str(home)}
        if len(os.fsencode(home)) <= LONGEST_TEMPORARY:
            ours["TMPDIR"] = str(home)  # what they leave there goes with the folder
        return {**QUIET, **os.environ, **ours}


def tool(name: str) -> str:
    """One of Flower's commands: the one beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise FedquiltError("Flower is not installed; run 'pip install \"fedquilt[flower]\"'.")
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
