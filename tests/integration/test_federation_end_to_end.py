"""Real processes on loopback, TLS and node keys on: kills, refusals, hostile uploads, bytes on the wire. `make test-e2e`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedquilt.federation.local.keys import make_certificates, make_node_key
from fedquilt.federation.local.processes import MARK
from fedquilt.federation.local.rehearsal import HOST, Rehearsal, free_ports
from fedquilt.federation.nginx.config_files import find_nginx
from fedquilt.federation.site.ledger import Ledger
from fedquilt.runs.folder import RunFolder
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, ragged_clients
from support.flower_doubles import site_models, site_states, write_open_sites
from support.rehearsals import SIZES, USUAL, until

pytestmark = pytest.mark.e2e


def rounds_done(out: Path, seed: int = 3) -> int:
    path = out / f"seed-{seed}" / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def back(rehearsal: Rehearsal, n: int) -> None:
    """Start a site again until it is let in: Flower takes a while to see that it was gone, as with a supervisor."""
    name = rehearsal.site_name(n)
    before = rehearsal.group.output(name, 10**7).count("SuperNode ID")

    def inside() -> bool:
        running = rehearsal.group.running.get(name)
        if running is None or running.poll() is not None:
            if running is not None:
                rehearsal.group.kill(name)
            rehearsal.start_site(n)
        return rehearsal.group.output(name, 10**7).count("SuperNode ID") > before

    until(inside, 120, "the site is back")


def alive(process: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def coordinators(rehearsal: Rehearsal) -> list[int]:
    """The processes in which the ServerApp runs."""
    return [each for each in rehearsal.group.started("superlink") if b"flwr-serverapp" in command_line(each)]


def command_line(process: int) -> bytes:
    """The command line of a process; nothing where it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def assert_whole(folder: Path) -> None:
    """No file is left torn."""
    assert not list(folder.rglob("*.tmp"))
    for path in folder.rglob("*.json"):
        json.loads(path.read_bytes())
    for path in folder.rglob("*.jsonl"):
        assert path.read_bytes().endswith(b"\n")
        for line in path.read_text().splitlines():
            json.loads(line)


def test_killed_sites_coordinators_and_superlinks_come_back_and_nothing_is_lost(tmp_path: Path) -> None:
    clients, rounds, settings = ragged_clients(SIZES), 7, {"hidden": 8}
    out = tmp_path / "run"
    order = {**USUAL, "out": str(out), "method": "fedpub", "rounds": rounds, "settings": settings}
    sites = write_open_sites(tmp_path, clients)
    with Rehearsal(sites, tmp_path / "logs") as rehearsal:
        # A node whose key is not registered, and one that trusts another authority: neither gets in.
        stranger, wrong = make_node_key(tmp_path / "stranger/key").with_suffix(""), tmp_path / "wrong"
        make_certificates(wrong)
        rehearsal.sites += [sites[0], sites[0]]
        rehearsal.node_ports += free_ports(2)
        rehearsal.start_site(3, key=stranger)
        rehearsal.start_site(4, key=stranger, certificate=wrong / "ca.crt")
        run = rehearsal.start_run(order)
        until(lambda: rounds_done(out) >= 2, 120, "two rounds")
        if rehearsal.nginx is not None:
            rehearsal.group.kill("proxy")
        rehearsal.group.kill("site-1")
        rehearsal.start_proxy()
        back(rehearsal, 1)
        until(lambda: rounds_done(out) >= 3, 180, "three rounds")
        for process in coordinators(rehearsal):
            os.kill(process, signal.SIGKILL)
        until(lambda: not coordinators(rehearsal), 20, "the coordinator is gone")
        until(lambda: run.poll() is not None, 120, "Flower notices that the coordinator is gone")
        assert rounds_done(out) < rounds
        again = rehearsal.start_run(order, "again")
        until(lambda: rounds_done(out) >= 5, 180, "five rounds")
        rehearsal.group.kill("superlink")  # and the coordinator, which it started
        until(lambda: again.poll() is not None, 60, "nobody answers any more")
        assert rounds_done(out) < rounds
        rehearsal.start_superlink()
        last = rehearsal.start_run(order, "last")
        until(lambda: last.poll() is not None, 300, "the run ends")
        assert (out / "result.json").exists(), rehearsal.group.output("last")
        started = rehearsal.group.started()
        refused = [rehearsal.group.output(f"site-{n}", 10**6) for n in (3, 4)]
    assert len(started) > 4
    assert rehearsal.group.started() == []
    assert not [process for process in started if alive(process)]
    names = RunFolder.open(out).config["federation"]["sites"]
    assert names == ["site-0", "site-1", "site-2"]
    assert all("SuperNode ID" not in said for said in refused)
    assert "Failed to activate SuperNode" in refused[0]
    assert "CERTIFICATE_VERIFY_FAILED" in refused[1]
    assert_whole(tmp_path)
    # As if nothing had been.
    method = make_method("fedpub", clients, make_task(clients), **settings)
    here = make_training(method, clients, Plan(rounds))
    here.run()
    records = RunFolder.open(out).seed(3).records()
    for mine, other in zip(records, here.records, strict=True):
        assert mine["participants"] == "all"
        for key in ("val", "test", "train_loss", "val_loss"):
            assert mine[key] == pytest.approx(other[key], rel=1e-5, abs=1e-5), (mine["round"], key)
    best, state = here.progress.best, here.engine.state()
    for m, (tensors, facts) in enumerate(site_models(tmp_path)):
        assert (facts["round"], facts["finished"]) == (best.round, True)
        for name, tensor in tensors.items():
            assert_near(tensor, best.models[name][m])
    for m, tensors in enumerate(site_states(tmp_path)):
        for name, tensor in tensors.items():
            if name in state:
                assert_near(tensor[0].double().nan_to_num(), state[name][m].double().nan_to_num())


# What makes a site hostile: its fedquilt is another than it says.
TAMPER = """
import os
if os.environ.get("HOSTILE_SITE"):
    import fedquilt.federation.site.worker_process
    honest = fedquilt.federation.site.worker_process.ask

    def ask(site, header, body):
        reply, sent = honest(site, header, body)
        if header.get("kind") == "round":
            import torch
            from fedquilt.messages.wire import decode, encode
            message, w = decode(sent), "model.conv1.weight"
            bad = {
                0: {w: message[w] * float("nan")},
                1: {w: message[w][:, :-1]},
                2: {w: torch.zeros(1, 4000, 4000)},
                3: {"passwords": torch.ones(1, 3)},
            }
            sent = encode({**message, **bad[header["round"]]})
        return reply, sent

    fedquilt.federation.site.worker_process.ask = ask
"""


class Scales:
    """A relay that weighs what goes through it: `up` is what the SuperNode sends."""

    def __init__(self, target: int) -> None:
        self.target, self.up, self.down = target, 0, 0
        self.listening = socket.create_server((HOST, 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.listening.accept()
                there = socket.create_connection((HOST, self.target))
            except OSError:
                return
            threading.Thread(target=self._relay, args=(here, there, "up"), daemon=True).start()
            threading.Thread(target=self._relay, args=(there, here, "down"), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(2**16):
                setattr(self, way, getattr(self, way) + len(data))
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                each.close()


@contextmanager
def weighed(sites: list[Path], tmp_path: Path) -> Iterator[tuple[Rehearsal, Scales]]:
    """A rehearsal in which the first site is on the scales and the second is hostile."""
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "sitecustomize.py").write_text(TAMPER)
    path = os.pathsep.join([str(tmp_path / "hostile"), os.environ.get("PYTHONPATH", "")])
    differences: dict[int, dict[str, Any]] = {1: {"env": {"PYTHONPATH": path, "HOSTILE_SITE": "1"}}}
    rehearsal = Rehearsal(sites, tmp_path / "logs", differences)
    scales = Scales(rehearsal.port)
    differences[0] = {"port": scales.port}
    with rehearsal:
        yield rehearsal, scales
    scales.listening.close()


def test_a_hostile_site_is_left_out_and_bytes_are_as_counted(tmp_path: Path) -> None:
    clients, out = ragged_clients(SIZES), tmp_path / "run"
    settings = {"hidden": 1024}
    order = {**USUAL, "out": str(out), "method": "fedavg", "rounds": 4, "settings": settings, "min-sites": 2}
    with weighed(write_open_sites(tmp_path, clients), tmp_path) as (rehearsal, scales):
        rehearsal.run(order)
    incidents = [json.loads(line) for line in (out / "incidents.jsonl").read_text().splitlines()]
    # On a busy machine a node's first answer may come too late; it is asked again, and that is noted too.
    incidents = [incident for incident in incidents if incident["what"] != "hello"]
    assert [(i["round"], i["site"], i["what"]) for i in incidents] == [(r, "site-1", "upload") for r in range(4)]
    for incident, says in zip(incidents, ("not finite", "of shape", "bytes", "'passwords'"), strict=True):
        assert says in incident["reason"]
    records = RunFolder.open(out).seed(3).records()
    assert [record["participants"] for record in records] == [[0, 2]] * 4
    assert_whole(tmp_path)
    lines = Ledger(next((tmp_path / "site-0/state").glob("*/"))).lines()
    counted = sum(line["bytes"] for line in lines)
    (tmp_path / "bytes.json").write_text(json.dumps({"ledger": counted, "up": scales.up, "down": scales.down}))
    print(
        f"\nledger {counted:,} bytes, on the wire {scales.up:,} up ({scales.up / counted - 1:+.2%}), {scales.down:,} down"
    )
    assert counted < scales.up < 1.05 * counted


def test_a_killed_rehearsal_leaves_nothing_running(tmp_path: Path) -> None:
    sites = ",".join(map(str, write_open_sites(tmp_path, ragged_clients(SIZES))))
    command = [sys.executable, "-m", "fedquilt", "rehearse", "--sites", sites, "--out", str(tmp_path / "out")]
    command += ["--method", "fedavg", "--set", "hidden=8", "--rounds", "50"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def marks() -> dict[int, str]:
        """All processes of rehearsals, by what they are marked with."""
        found = {}
        for each in Path("/proc").glob("[0-9]*"):
            try:
                env = (each / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found |= {int(each.name): line.decode() for line in env if line.startswith(f"{MARK}=".encode())}
        return found

    def mine() -> set[str]:
        """The mark of this rehearsal: that of the SuperNode that was given one of our sites."""
        said = {process: Path(f"/proc/{process}/cmdline") for process in marks()}
        ours = [
            process for process, path in said.items() if path.exists() and str(tmp_path).encode() in path.read_bytes()
        ]
        return {marks()[process].split("/")[0] for process in ours}

    def started() -> list[int]:
        return [process for process, mark in marks().items() if mark.split("/")[0] in known and alive(process)]

    try:
        until(lambda: rounds_done(tmp_path / "out/run", 0) >= 1, 180, "a round")
        known = mine()
        assert len(known) == 1
        assert len(started()) > 8  # SuperLink, SuperNodes, and what they start
        assert any(b"nginx" in command_line(each) for each in started()) == (find_nginx() is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: not started(), 20, "all processes are gone")
