"""CUDA graphs: what is captured and when, and that a replayed round gives what an eager one gives.

The tests on an accelerator skip where there is none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.devices.cuda_graph import CudaGraphCache
from fedquilt.messages.message import Factored
from fedquilt.methods import fedpub
from fedquilt.methods.averaging import patch_mean
from fedquilt.methods.base import methods
from fedquilt.nn import latent_graph
from fedquilt.nn.edges import Links
from fedquilt.nn.kernel_average import factor, shares
from fedquilt.nn.optim import FIRST, SECOND, STEP, adam_start, adam_step
from fedquilt.training import captured_rounds
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.plan import BEST, Plan
from support.clients import assert_near, numbers
from support.federations import make_method, make_task, ragged_clients

on_accelerator = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an accelerator, and there is none here"
)

# -- the cache -------------------------------------------------------------------------------------------


class Graph:
    """A CUDA graph of nothing: it counts how often it is replayed."""

    replays = 0

    def replay(self) -> None:
        Graph.replays += 1


class Capture:
    """Stands for `torch.cuda.graph`; a message in `failures` makes the next capture fail."""

    failures: list[str]

    def __init__(self, graph: Graph, pool: object, capture_error_mode: str) -> None:
        assert (pool, capture_error_mode) == ("pool", "thread_local")

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, *rest: object) -> None:
        if Capture.failures:
            raise RuntimeError(Capture.failures.pop(0))


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> CudaGraphCache[Any]:
    Graph.replays, Capture.failures = 0, []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return CudaGraphCache()


class Counter:
    def __init__(self, fails: str | None = None) -> None:
        self.calls, self.fails = 0, fails

    def __call__(self) -> int:
        self.calls += 1
        if self.fails and self.calls == 2:
            raise RuntimeError(self.fails)
        return self.calls


def test_the_first_call_of_a_key_runs_the_second_is_captured_and_all_are_replayed(cache: CudaGraphCache[Any]) -> None:
    count = Counter()
    assert not cache.is_ready("a")
    assert cache("a", count) == 1
    assert (Graph.replays, cache.is_ready("a")) == (0, True)
    assert cache("a", count) == 2  # captured and replayed: a capture executes nothing
    assert (count.calls, Graph.replays) == (2, 1)
    assert [cache("a", count) for _ in range(3)] == [2, 2, 2]
    assert (count.calls, Graph.replays) == (2, 4)
    assert cache.failure is None


def test_each_key_has_its_own_graph(cache: CudaGraphCache[Any]) -> None:
    one, two = Counter(), Counter()
    for _ in range(4):
        cache("one", one)
        cache(("two", 2), two)
    assert (one.calls, two.calls, Graph.replays) == (2, 2, 6)
    assert not cache.is_ready("three")


@pytest.mark.parametrize("where", ["inside", "at the end"])
def test_what_cannot_be_captured_runs_and_says_why(cache: CudaGraphCache[Any], where: str) -> None:
    said = "operation not permitted when stream is capturing\nCompile with more to know more\n"
    fine, count = Counter(), Counter(said if where == "inside" else None)
    for _ in range(2):
        cache("fine", fine)
    if where == "at the end":
        Capture.failures = [said]
    assert cache("a", count) == 1
    assert cache("a", count) == 3  # the second call was the failed capture
    assert cache.failure == "operation not permitted when stream is capturing"
    assert not cache.is_ready("a")
    assert cache("a", count) == 4  # from now on eagerly
    assert cache("fine", fine) == 2  # graphs that were captured stay
    assert (fine.calls, cache.is_ready("fine")) == (2, True)
    new = Counter()
    assert [cache("new", new) for _ in range(3)] == [1, 2, 3]  # and nothing else is tried
    assert not cache.is_ready("new")


def test_the_first_error_is_reported(cache: CudaGraphCache[Any]) -> None:
    """Ending a failed capture fails as well, and says less."""
    count = Counter("a look at the numbers")
    cache("a", count)
    Capture.failures = ["the capture was invalidated"]
    assert cache("a", count) == 3
    assert cache.failure == "a look at the numbers"


def test_errors_that_are_not_about_capturing_are_not_hidden(cache: CudaGraphCache[Any]) -> None:
    def wrong() -> None:
        raise ValueError("a defect")

    cache("a", Counter())
    with pytest.raises(ValueError, match="a defect"):
        cache("a", wrong)


# -- on an accelerator -----------------------------------------------------------------------------------

ROUNDS = 12
# Sums by atomic additions come in another order every time, so that two runs of the same rounds differ, captured or not.
ATOMICS = {
    "fedhero": "sums over latent neighbours by index_add",
    "fedssa": "sums over the nodes of a class by index_add",
    "fediih": "the gradient of index_select",
}
# Methods of whose rounds nothing is captured, and why.
NOT_CAPTURED = {"majority": "it has a single round"}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in methods()),
    ("fedpub", {"threshold": 0.5}),
    ("fedsheafhn", {"refresh": 2, "fresh_moments": False}),
    ("quilt", {"share": "layer,head,filter", "identity": 4}),
]


def on_cuda(name: str, settings: dict[str, Any], plan: Plan, captured: bool) -> Training:
    """Clients of so many nodes that one answer more or less is a third of a percent."""
    clients = ragged_clients((180, 150, 210, 165, 195))
    method = make_method(name, clients, make_task(clients, epochs=2), **settings)
    return Training(method, InProcess(method, clients, "cuda"), plan, cuda_graphs=captured)


@on_accelerator
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_captured_rounds_are_those_one_by_one(name: str, settings: dict[str, Any], every: int) -> None:
    plan = Plan(ROUNDS, evaluate_every=every)
    replayed, single = (on_cuda(name, settings, plan, captured) for captured in (True, False))
    replayed.run()
    single.run()
    assert single.captured is None
    if name in NOT_CAPTURED:
        assert replayed.captured is None or replayed.captured.startswith("nothing: ")
    else:
        assert replayed.captured == ("clients" if replayed.method.host_server else "rounds")
    near = 2.0 if name in ATOMICS else 1e-3
    assert len(replayed.records) == len(single.records)
    for mine, other in zip(replayed.records, single.records, strict=True):
        assert set(mine) == set(other)
        if settings.get("threshold") is None:
            assert (mine["bytes_up"], mine["bytes_down"]) == (other["bytes_up"], other["bytes_down"])
        if "val" in mine:
            for part in ("val", "test"):
                assert mine[part] == pytest.approx(other[part], abs=near)
            if other["train_loss"] is not None:
                assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-2)
    assert set(replayed.similarities) == set(single.similarities)
    if name not in ATOMICS:
        assert replayed.progress.best.round == single.progress.best.round
        for weight, model in replayed.progress.best.models.items():
            assert_near(model, single.progress.best.models[weight], 1e-3)
        for round, similarity in replayed.similarities.items():
            assert_near(similarity.cpu(), single.similarities[round].cpu(), 1e-3)


@on_accelerator
def test_averages_in_factors_are_captured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """FED-PUB with more clients than it compares one by one."""
    whole = on_cuda("fedpub", {}, Plan(ROUNDS), True)
    whole.run()
    monkeypatch.setattr(fedpub, "MANY", 2)
    replayed, single = (on_cuda("fedpub", {}, Plan(ROUNDS), captured) for captured in (True, False))
    for each in (replayed, single):
        each.run()
        assert isinstance(each.down["model.conv1.weight"], Factored)
    assert replayed.captured == "rounds"
    for mine, other, plain in zip(replayed.records, single.records, whole.records, strict=True):
        assert mine["val"] == pytest.approx(other["val"], abs=1e-3)
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
        assert mine["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-2)
        assert mine["bytes_down"] == plain["bytes_down"]


@on_accelerator
@pytest.mark.parametrize("count", [3, 60, 500])
def test_factors_of_similarity_are_the_cpus(count: int) -> None:
    """What they amount to: how many columns they take may differ."""
    centres = torch.nn.functional.normalize(numbers(0, 5, 16), dim=1)
    unit = torch.nn.functional.normalize(centres[torch.arange(count) % 5] + 0.005 * numbers(1, count, 16), dim=1)
    told, rest = factor(unit, 3.0)
    there, left = (t.cpu() for t in factor(unit.cuda(), 3.0))
    assert_near(there @ there.T + left.diag(), told @ told.T + rest.diag(), 3e-4)
    own = torch.arange(count)
    for here, far in zip(shares(unit, unit, 3.0, own), shares(unit.cuda(), unit.cuda(), 3.0, own.cuda()), strict=True):
        assert torch.isfinite(far).all()
        assert here.dtype == far.dtype


@on_accelerator
@pytest.mark.parametrize("most", [1, 3, 32])
def test_captured_rounds_of_any_block(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience ends them where it ends them one by one, and the best models are those of the best round."""
    monkeypatch.setattr(captured_rounds, "BLOCK_ROUNDS", most)
    for patience in (None, 2):
        plan = Plan(40, patience=patience)
        replayed, single = (on_cuda("fedpub", {"dropout": 0.8}, plan, captured) for captured in (True, False))
        for each in (replayed, single):
            each.run()
        assert replayed.progress.next_round == single.progress.next_round
        assert replayed.progress.best.round == single.progress.best.round
        assert_near(replayed.similarities[BEST].cpu(), single.similarities[BEST].cpu(), 1e-3)


@on_accelerator
def test_it_learns_what_it_learns_on_a_cpu() -> None:
    """Within what single precision makes of another order of sums."""
    clients = ragged_clients((180, 150, 210, 165, 195))
    method = make_method("fedavg", clients, make_task(clients, epochs=2))
    here = Training(method, InProcess(method, clients), Plan(6))
    here.run()
    there = on_cuda("fedavg", {}, Plan(6), True)
    there.run()
    for mine, other in zip(there.records, here.records, strict=True):
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-2)


# -- the accelerator's kernels ---------------------------------------------------------------------------

SHAPES = {"model.weight": (3, 700), "model.bias": (5,), "mask.weight": (3, 700)}


@on_accelerator
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("rates", ["one", "a client", "own"])
def test_adam_is_the_librarys(decay: float, rates: str) -> None:
    """With clients at different steps, and rates of their own; the library's runs on the CPU."""
    pytest.importorskip("triton", reason="the kernel is written in Triton")
    clients = 4
    each = {
        "one": {},
        "a client": {"mask.weight": torch.tensor([0.001, 0.0, 0.02, 0.3])},
        "own": {"model.bias": 0.05, "mask.weight": torch.tensor([0.1, 0.2, 0.3, 0.4])},
    }[rates]
    here = {name: numbers(i, clients, *shape) for i, (name, shape) in enumerate(SHAPES.items())}
    there = {name: w.cuda() for name, w in here.items()}
    mine, theirs = adam_start(here), adam_start(there)
    steps = torch.tensor([0.0, 3.0, 150.0, 20000.0])
    for state in (mine, theirs):
        state[STEP].copy_(steps)
    for turn in range(5):
        grads = {name: numbers(10 + turn, *w.shape) * 10.0 ** (turn - 3) for name, w in here.items()}
        adam_step(here, grads, mine, 0.01, decay, each)
        moved = {name: rate.cuda() if isinstance(rate, Tensor) else rate for name, rate in each.items()}
        adam_step(there, {name: grad.cuda() for name, grad in grads.items()}, theirs, 0.01, decay, moved)
    assert torch.equal(theirs[STEP].cpu(), mine[STEP])
    assert torch.equal(mine[STEP], steps + 5)
    for name, w in here.items():
        assert_near(there[name].cpu(), w, 1e-5)
        assert_near(theirs[FIRST + name].cpu(), mine[FIRST + name], 1e-5)
        assert_near(theirs[SECOND + name].cpu(), mine[SECOND + name], 1e-5)


@on_accelerator
@pytest.mark.parametrize(("n", "k"), [(9, 1), (64, 3), (257, 8), (1000, 20)])
@pytest.mark.parametrize("kind", ["ties", "normal", "padded"])
def test_the_largest_are_the_cpus(kind: str, n: int, k: int) -> None:
    scores = numbers(n, 3, 50, n)
    if kind != "normal":
        scores = scores.mul(2).round() + 0.0  # zeros of one sign
    if kind == "padded":
        scores[:, :, n // 2 :] = -math.inf
    best, place = (t.cpu() for t in latent_graph.largest(scores.cuda(), k))
    expected, there = latent_graph.largest(scores, k)
    assert torch.equal(best.sort(-1).values, expected.sort(-1).values)
    known = expected.sort(-1).values[..., 0] > -math.inf
    assert torch.equal(place.sort(-1).values[known], there.sort(-1).values[known])


@on_accelerator
@pytest.mark.parametrize("rest", [(), (7,), (5, 3)], ids=str)
def test_patches_are_averaged_as_on_a_cpu(rest: tuple[int, ...]) -> None:
    stack, seen = numbers(0, 6, 4, *rest), numbers(1, 6, 4).abs()
    seen[2] = 0.0
    assert_near(patch_mean(stack.cuda(), seen.cuda()).cpu(), patch_mean(stack, seen), 1e-5)
    if rest:
        turned, other = stack.transpose(1, -1), numbers(2, 6, rest[-1]).abs()
        assert_near(patch_mean(turned.cuda(), other.cuda()).cpu(), patch_mean(turned, other), 1e-5)


@on_accelerator
@pytest.mark.parametrize("width", [1, 5, 128, 200])
def test_sums_over_links_are_the_cpus(width: int) -> None:
    """Rows without a link among them, and their gradients."""
    rng = np.random.default_rng(width)
    source = torch.from_numpy(np.sort(rng.integers(0, 40, 300)) * 2)
    target, weight, z = torch.from_numpy(rng.integers(0, 80, 300)), numbers(1, 300), numbers(2, 80, width)
    out = []
    for device in ("cpu", "cuda"):
        links = Links(source.to(device), target.to(device), 80)
        w, x = weight.to(device).requires_grad_(), z.to(device).requires_grad_()
        summed, dots = links.sum(w, x), links.dot(x, x)
        grads = torch.autograd.grad((summed.square().sum() + (dots * w).sum()), (w, x))
        out.append([t.detach().cpu() for t in (summed, dots, *grads)])
    for here, there in zip(*out, strict=True):
        assert_near(there, here, 1e-4)


@on_accelerator
@pytest.mark.parametrize("width", [1, 7, 64, 128, 200, 300])
def test_sparse_products_equal_those_on_the_cpu(width: int) -> None:
    rng = np.random.default_rng(width)
    matrix = SparseMatrix(sp.random(70, 50, density=0.1, format="csr", random_state=rng, dtype=np.float32))
    x, grad = numbers(0, 50, width), numbers(1, 70, width)
    there = matrix.to(torch.device("cuda"))
    one, two = x.clone().requires_grad_(), x.cuda().requires_grad_()
    here, product = matrix @ one, there @ two
    assert_near(product.cpu(), here, 1e-5)
    here.backward(grad)
    product.backward(grad.cuda())
    assert_near(two.grad.cpu(), one.grad, 1e-5)
    assert torch.equal(there @ two, product)  # the same sum every time
