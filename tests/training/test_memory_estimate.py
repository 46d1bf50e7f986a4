"""The estimate is within 1.5 of what a training takes, for every method."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.memory import Point, make_method, random_clients

from fedquilt.cohort.cohort import Cohort
from fedquilt.devices import offload
from fedquilt.devices.memory_meter import MemoryMeter
from fedquilt.messages.message import dense, each_tensor
from fedquilt.messages.slicing import same_kind, slice_message
from fedquilt.methods.base import RoundSizes, methods
from fedquilt.training import memory_estimate
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.engines.registry import EngineOptions
from fedquilt.training.memory_estimate import LARGEST, SPREAD, MemoryEstimate, client_memory, estimate_memory

ROOT = Path(__file__).resolve().parents[2]
WITHIN = 1.5
SMALL = Point("fedavg", clients=12, nodes=60, features=40, hidden=64)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks of memory are read from Linux's /proc")
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(sorted(methods())[::4], id="a quarter"),
        *(pytest.param(sorted(methods())[n::4], id=f"quarter {n}", marks=pytest.mark.long) for n in (1, 2, 3)),
    ],
)
def test_what_is_estimated_is_what_is_measured(names: list[str]) -> None:
    """A quarter of the methods at a time, and in each of them one whose memory is known."""
    sizes = "--clients 50 --nodes 60 --features 500 --hidden 64 --json"
    names = sorted({*names, "fedhero", "majority"})
    command = [sys.executable, "-m", "benchmarks.memory", *sizes.split(), "--methods", ",".join(names)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = {one["point"]["method"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert sorted(found) == names
    ratios = {name: one["estimated"] / one["measured"] for name, one in found.items()}
    assert not {name: ratio for name, ratio in ratios.items() if not 1 / WITHIN < ratio < WITHIN}
    assert found["fedhero"]["measured"] > 3 * found["majority"]["measured"]  # there is something to estimate


def estimated(point: Point, device: str = "cpu", workers: int | None = None) -> MemoryEstimate:
    options = EngineOptions(torch.device(device), point.cohort_size or None, workers=workers)
    return estimate_memory(make_method(point), random_clients(point), options, point.participation)


@pytest.mark.parametrize("name", sorted(methods()))
def test_what_a_server_says_of_itself_is_what_it_holds(name: str) -> None:
    """In round 1, with the uploads of 150 clients; less than 2 MB is not looked at."""
    point, many = replace(SMALL, method=name), 150
    clients, method = random_clients(point)[:2], make_method(replace(point, method=name, clients=many))
    if method.single_round:
        assert method.server_memory(RoundSizes(many, many, 0, 0)) == 0
        return
    cohort, everyone = Cohort(clients), torch.arange(many)
    state = method.start(cohort)
    server, down = method.server_start()

    def sent(round: int) -> dict:
        upload = method.local_update(state, cohort, slice_message(down, method.downloads, 0, 2), round).upload
        return {n: same_kind(v, dense(v).repeat(many // 2, *[1] * (dense(v).dim() - 1))) for n, v in upload.items()}

    down = method.aggregate(server, sent(0), everyone, everyone)
    uploads = sent(1)
    with MemoryMeter() as meter:
        server, _ = method.server_start()
        new = method.aggregate(server, uploads, everyone, everyone)
        with torch.no_grad():
            method.diagnostics(server)
    size = sum(t.numel() * t.element_size() for value in uploads.values() for t in each_tensor(value)) // many
    said = method.server_memory(RoundSizes(many, many, size, 0))
    made = sum(t.numel() * t.element_size() for value in new.values() for t in each_tensor(value))
    held = max(0, meter.peak - made)
    assert said + 2e6 > held / 1.6
    assert said - 2e6 < held * 1.6


def test_what_is_free_beyond_two_gigabytes_is_returned_between_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the largest of first round, later rounds and server counts, and as much of the others as the heap keeps."""
    point = replace(SMALL, method="fediih")
    each = client_memory(make_method(point), random_clients(point))
    monkeypatch.setattr(memory_estimate, "client_memory", lambda *_: each)
    whole = estimated(point)
    assert whole.returned == 0
    monkeypatch.setattr(memory_estimate, "TRIM_BYTES", 0)
    returned = estimated(point)
    phases = sorted((point.clients * each.first, point.clients * each.later, returned.server / SPREAD))
    assert phases[0] > 0
    assert returned.returned == pytest.approx(SPREAD * (phases[0] + phases[1]), abs=1)
    assert returned.total == pytest.approx(whole.total - returned.returned, abs=1)
    assert estimated(point, device="cuda").returned == 0  # another allocator


def test_memory_grows_with_clients_nodes_and_features() -> None:
    first = estimated(SMALL).total
    for name in ("clients", "nodes", "features", "hidden"):
        larger = estimated(replace(SMALL, **{name: 4 * getattr(SMALL, name)})).total
        assert larger > first, name


def test_smaller_cohorts_and_fewer_participants_work_with_less(monkeypatch: pytest.MonkeyPatch) -> None:
    each = client_memory(make_method(SMALL), random_clients(SMALL))
    with monkeypatch.context() as patch:
        patch.setattr(memory_estimate, "client_memory", lambda *_: each)
        whole, parts = estimated(SMALL), estimated(replace(SMALL, cohort_size=3))
    assert parts.cohort == 3
    assert parts.working == pytest.approx(whole.working / 4, abs=1)
    assert estimated(replace(SMALL, method="fedpub", participation=0.25)).server < (
        estimated(replace(SMALL, method="fedpub")).server
    )
    assert estimated(SMALL, workers=3).cohort == 4


def test_what_everyone_sent_last_counts_where_clients_sit_out() -> None:
    point = replace(SMALL, method="pfedgraph", participation=0.5)
    method, clients, options = make_method(point), random_clients(point), EngineOptions(torch.device("cpu"))
    upload = client_memory(method, clients).upload
    kept, not_kept = (estimate_memory(method, clients, options, 0.5, sits_out=some) for some in (True, False))
    assert kept.server - not_kept.server >= SPREAD * 2 * 12 * upload * 0.99
    lost = estimate_memory(method, clients, options, 1.0, sits_out=True).server
    assert lost - estimate_memory(method, clients, options).server >= SPREAD * 2 * 12 * upload * 0.99


def test_states_on_disk_are_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = estimated(replace(SMALL, cohort_size=3))
    monkeypatch.setattr(offload, "THRESHOLD_BYTES", 0)
    outside = estimated(replace(SMALL, cohort_size=3))
    assert outside.clients < inside.clients
    assert (outside.least, inside.offloaded) == (0, 0)
    assert outside.offloaded > inside.least > 0
    assert estimated(SMALL).offloaded == 0  # one cohort is all in memory
    assert estimated(replace(SMALL, cohort_size=3), device="cuda").offloaded == 0


def test_a_large_client_is_extrapolated_from_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    point = Point("fedavg", clients=3, nodes=LARGEST - 1, features=20, hidden=64)
    method, clients = make_method(point), random_clients(point)
    whole = client_memory(method, clients)
    monkeypatch.setattr("fedquilt.training.memory_estimate.LARGEST", 200)
    small = client_memory(method, clients)
    assert small.state == whole.state
    assert small.first + small.later + small.data == pytest.approx(whole.first + whole.later + whole.data, rel=0.15)


def test_an_estimate_changes_nothing() -> None:
    clients, method = random_clients(SMALL), make_method(SMALL)
    before = [dict(vars(client)) for client in clients], method.settings, method.context
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    estimate_memory(method, clients, EngineOptions(torch.device("cpu")))
    assert torch.rand(1) == expected
    assert ([dict(vars(client)) for client in clients], method.settings, method.context) == before


def test_batches_take_the_memory_of_a_step_and_of_a_layer() -> None:
    """A client of 5,000 nodes that computes 250 at once: measured by what tensors and arrays live at most in a round."""
    point = replace(SMALL, clients=2, nodes=5_000)
    clients, whole = random_clients(point), make_method(point)
    method = type(whole)(whole.settings, replace(whole.context, batch_nodes=250))
    options = EngineOptions(torch.device("cpu"), 1)
    found, full = (estimate_memory(one, clients, options) for one in (method, whole))
    assert found.clients + found.working < (full.clients + full.working) / 2
    meter = MemoryMeter()
    with meter:
        engine = InProcess(method, clients, cohort_size=1)
        engine.round(0, torch.arange(2), {}, evaluate=True)
        engine.round(1, torch.arange(2), {}, evaluate=True)
    assert meter.peak / WITHIN < found.clients + found.working < WITHIN * meter.peak
