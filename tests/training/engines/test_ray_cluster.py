"""Ray: the resources of each worker, and joining a cluster. No Ray is started here."""

from __future__ import annotations

import pytest
import torch

from fedquilt.errors import FedquiltError

ray = pytest.importorskip("ray")
from fedquilt.training.engines.ray_cluster import cluster, cores_each, gpu_each, threads_each  # noqa: E402

CPU = torch.device("cpu")


def test_a_gpu_each_or_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    assert not gpu_each(2, cuda)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"GPU": 2.0})
    assert gpu_each(2, cuda)
    assert not gpu_each(2, CPU)
    with pytest.raises(
        FedquiltError, match="Each of 3 workers needs a GPU and Ray has 2; use --workers 2 or --device cpu"
    ):
        gpu_each(3, cuda)


def test_threads_are_a_share_of_the_cores_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 64.0}}]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_each(workers) for workers in (1, 2, 3)] == [2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert threads_each(2) == 5


@pytest.mark.parametrize(
    ("cores", "workers", "each"),
    [([8], 3, 2), ([3, 3], 3, 1), ([16, 16], 2, 16), ([16, 4], 2, 8), ([2], 5, 1), ([0], 1, 1)],
)
def test_cores_each(cores: list[int], workers: int, each: int) -> None:
    assert cores_each(cores, workers) == each


def test_ray_that_is_there_is_left_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("shut down"))
    with cluster():
        pass


def test_an_address_where_nobody_listens_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(FedquiltError, match=r"No Ray cluster answers at 127.0.0.1:1; start one with 'ray"), cluster():
        pytest.fail("nobody is there")
