"""The proxy in front of the SuperLink: sites train through it as before, and a stranger with ca.crt gets nothing.

The stranger tries everything twice: at the proxy, and at the SuperLink's own port, where it succeeds. Before there was a proxy,
that port was the public one. `make test-e2e`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from fedquilt.federation.local.keys import make_node_key
from fedquilt.federation.local.rehearsal import HOST, Rehearsal, app_folder, find_tool
from fedquilt.federation.nginx.config_files import ACCESS_LOG
from fedquilt.federation.nginx.proxy import FLEET_CALLS
from fedquilt.runs.folder import RunFolder
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients
from support.flower_doubles import write_open_sites
from support.nginx import needs_nginx
from support.rehearsals import USUAL, until

pytestmark = [pytest.mark.e2e, needs_nginx]
DOCUMENT = Path(__file__).parents[2] / "docs" / "federation.md"
PAGES = [("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/")]
ROUNDS, SETTINGS, SIZES = 2, {"hidden": 8}, (25, 14)


class Stranger:
    """Somebody with ca.crt and a node key that nobody registered, who knows both ports."""

    def __init__(self, rehearsal: Rehearsal, folder: Path) -> None:
        self.ports = {"proxy": rehearsal.port, "superlink": rehearsal.superlink_port}
        self.key = make_node_key(folder / "key")
        self.folder = folder
        authority = folder / "ca.crt"
        authority.write_bytes((rehearsal.folder / "certificates" / "ca.crt").read_bytes())
        places = (
            f'[superlink.{name}]\naddress = "{HOST}:{port}"\nroot-certificates = "{authority}"\n'
            for name, port in self.ports.items()
        )
        (folder / "config.toml").write_text("".join(['[superlink]\ndefault = "proxy"\n', *places]))
        self.http = httpx.Client(verify=ssl.create_default_context(cafile=str(authority)))

    def flwr(self, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
        """Run commands of `flwr` side by side; their exit statuses and what they said."""
        env = {**os.environ, "FLWR_HOME": str(self.folder), "FLWR_TELEMETRY_ENABLED": "0"}
        running = [
            subprocess.Popen(
                [find_tool("flwr"), *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for command in commands
        ]
        return [(process.wait(120), process.communicate()[0]) for process in running]

    def attempts(self, place: str, run: str) -> list[list[str]]:
        """To register a node, start a run, list runs, read a log."""
        return [
            ["supernode", "register", str(self.key), place],
            ["run", str(app_folder()), place, "--run-config", f'out="{self.folder}/mine" sites=2'],
            ["list", place],
            ["log", run, place, "--show"],
        ]

    def calls(self, place: str, operations: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """The status of the answer to each operation, called with an empty message."""
        headers = {"content-type": "application/protobuf"}
        return {
            (method, path): self.http.request(
                method, f"https://{HOST}:{self.ports[place]}{path}", headers=headers
            ).status_code
            for method, path in operations
        }

    def operations(self) -> list[tuple[str, str]]:
        """All that the SuperLink serves, as it says itself."""
        paths = self.http.get(f"https://{HOST}:{self.ports['superlink']}/openapi.json").json()["paths"]
        return [(method.upper(), path) for path, methods in paths.items() for method in methods] + PAGES


def test_sites_train_through_the_proxy_and_a_stranger_gets_nothing(tmp_path: Path) -> None:
    clients, out = ragged_clients(SIZES), tmp_path / "run"
    order = {**USUAL, "sites": len(SIZES), "out": str(out), "method": "fedavg", "rounds": ROUNDS, "settings": SETTINGS}
    with Rehearsal(write_open_sites(tmp_path, clients), tmp_path / "logs") as rehearsal:
        assert rehearsal.port != rehearsal.superlink_port
        run = rehearsal.start_run(order)
        stranger = Stranger(rehearsal, tmp_path / "stranger")
        (number,) = until(lambda: re.findall(r"started run (\d+)", rehearsal.group.output("run")), 60, "the run starts")
        # Meanwhile at the proxy: neither Flower's own commands nor any call gets through.
        for status, said in stranger.flwr(stranger.attempts("proxy", number)):
            assert status != 0
            assert "403 Forbidden" in said
        operations = stranger.operations()
        groups = {path.split("/")[2] for _, path in operations if path.startswith("/v1/")}
        assert groups == {"control", "fleet", "runtime"}
        others = len(set(operations) - fleet_operations() - set(PAGES))
        assert f"The SuperLink serves {others} more." in DOCUMENT.read_text()
        for operation, status in stranger.calls("proxy", operations).items():
            # What SuperNodes call passes, and Flower asks for a signature of a registered key.
            assert status == (401 if operation in fleet_operations() else 403), operation
        until(lambda: run.poll() is not None, 240, "the run ends")
        assert (out / "result.json").exists(), rehearsal.group.output("run")
        # At the SuperLink's own port, which was the public one, all of it succeeds.
        with pytest.raises(OSError):  # it listens on loopback only, and there on one address
            socket.create_connection(("127.0.0.2", rehearsal.superlink_port), timeout=5)
        done = stranger.flwr(stranger.attempts("superlink", number))
        for (status, said), expected in zip(done, ("registered", "started run", number, "fedquilt: done"), strict=True):
            assert status == 0
            assert expected in said
        served = stranger.calls("superlink", [("POST", "/v1/control/list-runs"), ("POST", "/v1/runtime/acquire-task")])
        assert set(served.values()) == {200}
        # So do accounts on a site's machine at its SuperNode's port.
        task = f"http://{HOST}:{rehearsal.node_ports[0]}/v1/runtime/acquire-task"
        assert httpx.post(task, headers={"content-type": "application/protobuf"}).status_code == 200
        rehearsal.group.end(rehearsal.site_names)
        calls = [line.split('"')[1:3] for line in (rehearsal.folder / "proxy" / ACCESS_LOG).read_text().splitlines()]
    # What SuperNodes called, all of it and nothing else.
    used = {tuple(request.split()[:2]) for request, rest in calls if rest.split()[0] == "200"}
    assert used == fleet_operations()
    assert_as_in_one_process(out, clients)


def fleet_operations() -> set[tuple[str, str]]:
    return {("POST", f"/v1/fleet/{call}") for call in FLEET_CALLS}


def assert_as_in_one_process(out: Path, clients: Sequence) -> None:
    here = make_training(make_method("fedavg", clients, make_task(clients), **SETTINGS), clients, Plan(ROUNDS))
    here.run()
    folder = RunFolder.open(out)
    assert not (out / "incidents.jsonl").exists()
    assert json.loads((out / "result.json").read_bytes())["seeds"][0]["best_round"] == here.progress.best.round
    for mine, other in zip(folder.seed(3).records(), here.records, strict=True):
        for key in ("val", "test", "train_loss", "val_loss"):
            assert mine[key] == pytest.approx(other[key], rel=1e-5, abs=1e-5), (mine["round"], key)
