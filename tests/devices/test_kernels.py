"""The Triton kernels give what the CPU gives. Skipped where there is no accelerator."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.nn.edges import Links
from fedquilt.nn.optim import FIRST, SECOND, STEP, adam_start, adam_step
from support.clients import assert_near, numbers

on_accelerator = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an accelerator, and there is none here"
)


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
def test_more_clients_than_a_grid_has_on_its_other_axes() -> None:
    pytest.importorskip("triton", reason="the kernel is written in Triton")
    here = {"w": numbers(0, 70_000, 3)}
    there = {"w": here["w"].cuda()}
    grads, mine, theirs = numbers(1, 70_000, 3), adam_start(here), adam_start(there)
    adam_step(here, {"w": grads}, mine, 0.01, 0.0, {})
    adam_step(there, {"w": grads.cuda()}, theirs, 0.01, 0.0, {})
    assert_near(there["w"].cpu(), here["w"], 1e-5)


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
