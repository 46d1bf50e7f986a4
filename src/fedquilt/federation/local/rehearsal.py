"""A whole federation on this machine: Flower's own processes, TLS, node keys, and the proxy in front of the SuperLink.

All processes end with the rehearsal.
"""

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

from fedquilt.common.json_text import read_json
from fedquilt.errors import FedquiltError
from fedquilt.federation.local.keys import make_certificates, make_node_key
from fedquilt.federation.local.processes import ProcessGroup
from fedquilt.federation.nginx.config_files import find_nginx, start_command, write_config
from fedquilt.federation.nginx.proxy import Proxy

HOST, CONNECTION, PROXY = "127.0.0.1", "rehearsal", "proxy"
START_SECONDS = 90.0
CONNECT_SECONDS = 180.0
# What Flower prints: a key is registered already; a node is connected; a node has to wait, up to a minute, because Flower has
# not noticed yet that its last process was killed.
KEY_REGISTERED, CONNECTED, MUST_WAIT = "already in use", "SuperNode ID", "Failed to activate SuperNode"
RETRY_SECONDS = 4.0  # until such a node is started again
# The path of a Unix socket has at most 103 bytes on some systems; below TMPDIR, that of a site's worker process has up to 43.
LONGEST_TMPDIR = 60
# Defaults for Flower's processes, which the user's environment can change: no telemetry, short polling intervals.
FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "PYTHONUNBUFFERED": "1",
}
_PROGRESS = re.compile(r"fedquilt: (.*)")


def app_folder() -> Path:
    """The folder of the Flower app that `flwr run` takes."""
    return Path(__file__).parent.parent / "app"


class Rehearsal:
    """A SuperLink, the proxy in front of it, a SuperNode for each site, and runs; use it in a `with` block.

    SuperNodes connect to `port`, the proxy's, and `flwr` to `superlink_port`. Where nginx is not installed, both are one.

    Args:
        sites: their site.yaml files.
        logs: the folder for the processes' output.
        site_options: arguments of `start_site` for some of the sites, by their position in `sites`.
        private: a folder for the node keys and the SuperLink's database, with which a stopped rehearsal can be resumed: sites
            are the same nodes again. It is removed when the run has its result. None: a temporary folder.
    """

    def __init__(
        self,
        sites: Sequence[Path],
        logs: Path,
        site_options: Mapping[int, dict[str, Any]] | None = None,
        private: Path | None = None,
    ) -> None:
        self.sites = [Path(site).resolve() for site in sites]
        self.site_options = site_options or {}
        self.folder = Path(tempfile.mkdtemp(prefix="fedquilt-rehearsal-"))
        self.private = self.folder / "private" if private is None else private.resolve()
        self.resumed = self._database.exists()
        self.finished = False
        self._log_start: dict[int, int] = {}  # where the output of a site's newest process starts in its log
        self.group = ProcessGroup(logs, self.folder)
        self.nginx = find_nginx()
        self.superlink_port, self.port, *self.node_ports = free_ports(2 + len(self.sites))
        if self.nginx is None:
            self.port = self.superlink_port

    def __enter__(self) -> Rehearsal:
        try:
            self._prepare()
            self.start_superlink()
            self.start_proxy()
            self._register([self._key(n).with_name(f"node-{n}.pub") for n in range(len(self.sites))])
            for n in range(len(self.sites)):
                self.start_site(n, **self.site_options.get(n, {}))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # First the coordinator, which would count sites that leave as failures. Then the sites, while the SuperLink
            # still runs: they sign off there, else it keeps their places for a minute.
            self.group.kill_started("superlink", "flwr-serverapp")
            self.group.end([name for name in self.site_names if name in self.group.running])
        finally:
            self.group.__exit__()
            if self.finished:
                shutil.rmtree(self.private, ignore_errors=True)

    def _prepare(self) -> None:
        make_certificates(self.folder / "certificates", HOST)  # new each time: no node is recognised by them
        self.private.mkdir(parents=True, exist_ok=True)
        self.private.chmod(0o700)
        for n in range(len(self.sites)):
            self._make_key(n)
        flower_home = self.folder / "coordinator"
        flower_home.mkdir()
        connection = {"address": f"{HOST}:{self.superlink_port}", "root-certificates": str(self._certificate("ca.crt"))}
        lines = [f"{key} = {json.dumps(value)}" for key, value in connection.items()]
        (flower_home / "config.toml").write_text(
            "\n".join(["[superlink]", f'default = "{CONNECTION}"', f"[superlink.{CONNECTION}]", *lines, ""])
        )

    def _make_key(self, n: int) -> None:
        """Make a node key unless there is one. It gets its name only when it is completely written."""
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
        """Start the SuperLink and wait until it answers. Its database stays when it ends."""
        command = [
            find_tool("flower-superlink"),
            *("--ssl-ca-certfile", str(self._certificate("ca.crt"))),
            *("--ssl-certfile", str(self._certificate("server.pem"))),
            *("--ssl-keyfile", str(self._certificate("server.key"))),
            "--enable-supernode-auth",
            *("--database", str(self._database)),
            "--disable-runtime-dependency-installation",
            *("--host", HOST, "--port", str(self.superlink_port)),
        ]
        process = self.group.start("superlink", command, self._env("coordinator"))
        self._wait_until_listening(process, "superlink", self.superlink_port, "Flower's SuperLink")

    def start_proxy(self) -> None:
        """Start the proxy where nginx is installed, and wait until it answers."""
        if self.nginx is None:
            return
        certificate, key, authority = (self._certificate(name) for name in ("server.pem", "server.key", "ca.crt"))
        proxy = Proxy(f"{HOST}:{self.port}", self.superlink_port, certificate, key, authority)
        write_config(self.folder / PROXY, proxy.config())
        # One process, which ends with this one: workers of a master that is killed would stay.
        command = start_command(self.folder / PROXY, self.nginx, " master_process off;")
        process = self.group.start(PROXY, command, self._env("coordinator"))
        self._wait_until_listening(process, PROXY, self.port, "The proxy (nginx)")

    def _wait_until_listening(self, process: subprocess.Popen[bytes], name: str, port: int, what: str) -> None:
        until = time.monotonic() + START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > until:
                raise FedquiltError(f"{what} did not start; it said: {self.group.output(name, 600)}")
            time.sleep(0.2)

    def start_site(
        self,
        n: int,
        key: Path | None = None,
        certificate: Path | None = None,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a site's SuperNode, by default with its own key, the right certificate and the proxy's port."""
        command = [
            find_tool("flower-supernode"),
            *("--superlink", f"{HOST}:{port or self.port}"),
            *("--root-certificates", str(certificate or self._certificate("ca.crt"))),
            *("--auth-supernode-private-key", str(key or self._key(n))),
            *("--host", HOST, "--port", str(self.node_ports[n])),
            *("--node-config", f"site={json.dumps(str(self.sites[n]))}"),
        ]
        self._log_start[n] = self.group.output_size(self.site_name(n))
        self.group.start(self.site_name(n), command, {**self._env(f"site-{n}"), **(env or {})})

    @property
    def site_names(self) -> list[str]:
        """The names of the sites' processes."""
        return [self.site_name(n) for n in range(len(self.sites))]

    def site_name(self, n: int) -> str:
        """The name of a site's process and of its log."""
        return f"site-{n}"

    def _register(self, keys: Sequence[Path]) -> None:
        """Register node keys at the SuperLink, as its operator would; a key that is registered stays so."""
        registrations, env = [], self._env("coordinator")
        for key in keys:
            name, command = f"register-{key.stem}", [find_tool("flwr"), "supernode", "register", str(key), CONNECTION]
            registrations.append((name, self.group.output_size(name), self.group.start(name, command, env)))
        for name, start, process in registrations:
            if process.wait(START_SECONDS) != 0 and KEY_REGISTERED not in (
                output := self.group.output(name, 600, start)
            ):
                raise FedquiltError(f"A node key was not registered: {output}")

    def start_run(self, run_config: Mapping[str, Any], name: str = "run") -> subprocess.Popen[bytes]:
        """Start `flwr run`. The process ends with the run, and its log has the coordinator's output."""
        file = self.folder / f"{name}.toml"
        as_json = {name: json.dumps(run_config.get(name, {})) for name in ("settings", "task-settings")}
        values = {**run_config, **as_json}
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
        command = [find_tool("flwr"), "run", str(app_folder()), CONNECTION, "--stream", "--run-config", str(file)]
        return self.group.start(name, command, self._env("coordinator"))

    def run(self, run_config: Mapping[str, Any], say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
        """Train; returns what result.json says. `say` is called with each line of progress."""
        if self.resumed:
            self._wait_until_connected(say)
        start = self.group.output_size("run")
        process, shown = self.start_run(run_config), 0
        while True:
            ended = process.poll() is not None
            output = self.group.output("run", 10**7, start)
            lines = _PROGRESS.findall(output if ended else output[: output.rfind("\n") + 1])
            for line in lines[shown:]:
                say(line)
            shown = len(lines)
            if ended:
                break
            self._check_alive(["superlink", PROXY, *self.site_names])
            time.sleep(0.5)
        result = Path(str(run_config["out"])) / "result.json"
        if not result.is_file():
            wrong = lines[-1] if lines else self.group.output("run", 600, start)
            raise FedquiltError(f"The rehearsal did not end well: {wrong}")
        self.finished = True
        found: dict[str, Any] = read_json(result)
        return found

    def _wait_until_connected(self, say: Callable[[str], None]) -> None:
        """Wait until all sites are connected. A site that was killed is restarted until Flower has noticed that it was gone."""
        until, announced = time.monotonic() + CONNECT_SECONDS, False
        while unconnected := [n for n in range(len(self.sites)) if CONNECTED not in self._site_output(n)]:
            if time.monotonic() > until:
                name = self.site_name(unconnected[0])
                raise FedquiltError(f"The process '{name}' was not let in; it said: {self.group.output(name, 600)}")
            ended = [n for n in unconnected if self.group.running[self.site_name(n)].poll() is not None]
            waiting = [n for n in ended if MUST_WAIT in self._site_output(n)]
            self._check_alive(["superlink", PROXY, *(self.site_name(n) for n in set(ended) - set(waiting))])
            if waiting and not announced:
                say("Flower lets sites that were killed in again after up to a minute; waiting ...")
                announced = True
            time.sleep(RETRY_SECONDS if waiting else 0.2)
            for n in waiting:
                self.group.end([self.site_name(n)])
                self.start_site(n, **self.site_options.get(n, {}))

    def _site_output(self, n: int) -> str:
        """The output of a site's newest process."""
        return self.group.output(self.site_name(n), 10**7, self._log_start[n])

    def _check_alive(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self.group.running and self.group.running[name].poll() is not None:
                raise FedquiltError(f"The process '{name}' ended by itself; it said: {self.group.output(name, 600)}")

    def _env(self, who: str) -> dict[str, str]:
        """The environment of a party's processes. Each party has its own FLWR_HOME, as on its own machine."""
        folder = self.folder / who
        folder.mkdir(exist_ok=True)
        scripts = str(Path(sys.executable).parent)  # Flower finds its own commands by name
        ours = {"PATH": scripts + os.pathsep + os.environ.get("PATH", ""), "FLWR_HOME": str(folder)}
        if len(os.fsencode(folder)) <= LONGEST_TMPDIR:
            ours["TMPDIR"] = str(folder)  # so that temporary files are removed with the folder
        return {**FLOWER_ENVIRONMENT, **os.environ, **ours}


def find_tool(name: str) -> str:
    """The path of a Flower command: beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise FedquiltError("Flower is not installed; run 'pip install \"fedquilt[flower]\"'.")
    return found


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on now."""
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
