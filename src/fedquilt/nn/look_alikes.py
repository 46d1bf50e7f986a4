"""Look-alikes: nodes of other owners whose embeddings point the same way, as further neighbours in a graph layer.

A server keeps some embeddings of each client and chooses for every client those of others that are most like one of its own
(`choose_look_alikes`); the client joins each of its nodes to the nearest of them (`join`), and the layer counts them as
neighbours (`expanded_gcn`, `expanded_sage`). An edge to a look-alike weighs one, as an edge does on average, and leads to the
node only: nothing flows back.

Memory: at the server chunks of at most `CHUNK` similarities; at a client one number for each of its nodes and look-alikes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.nn import layers

CHUNK = 2**24  # similarities that are in memory at once


@dataclass(frozen=True)
class Joined:
    """The look-alikes of every node: their number [R], and the sum [R, H] of what the layer takes of them."""

    count: Tensor
    total: Tensor


def choose_look_alikes(
    mine: Tensor, owner: Tensor, others: Tensor, owners: Tensor, count: int, threshold: float
) -> tuple[Tensor, Tensor, Tensor]:
    """For each of n clients the `count` embeddings of other clients that are most like one of its own.

    Args:
        mine: [n, S, H] the clients' own embeddings; zero rows are padding. owner: [n] their numbers.
        others: [P, H] embeddings to choose from; zero rows are padding. owners: [P] whose they are.
        count: how many to choose, at most P.
        threshold: of the cosine between an embedding and the nearest of the client's own; above zero.

    Returns:
        [n, count, H], the most alike first, zeros where fewer are above the threshold; [n] how many are; and [n, S] the
        cosine of each of the clients' own with the nearest of others.
    """
    keys = F.normalize(others, dim=1).T
    chosen, found, nearest = [], [], []
    size = max(1, CHUNK // max(1, mine.shape[1] * others.shape[0]))
    for part, number in zip(mine.split(size), owner.split(size), strict=True):
        alike = F.normalize(part, dim=2) @ keys
        alike.masked_fill_((owners == number.unsqueeze(1)).unsqueeze(1), -1.0)
        best, place = alike.amax(1).topk(count, dim=1)
        near = best > threshold
        chosen.append(torch.where(near.unsqueeze(2), others[place], 0.0))
        found.append(near.sum(1))
        nearest.append(alike.amax(2))
        del alike  # before the next chunk
    return torch.cat(chosen), torch.cat(found), torch.cat(nearest)


def join(rows: Rows, embedding: Tensor, bank: Tensor, neighbours: int, threshold: float) -> Joined:
    """Join each row to at most `neighbours` embeddings of its client's bank whose cosine with it is above the threshold.

    Args:
        embedding: [R, H]. bank: [M, B, H] the look-alikes of each client; zero rows are padding.

    Returns:
        The look-alikes as the next layer takes them, after a ReLU; both are constants to autograd.
    """
    with torch.no_grad():
        alike = rows.multiply(F.normalize(embedding, dim=1), F.normalize(bank, dim=2).transpose(1, 2).contiguous())
        best, place = alike.topk(min(neighbours, bank.shape[1]), dim=1)
        near = (best > threshold).to(embedding.dtype)
        chosen = torch.zeros_like(alike).scatter_(1, place, near)
        return Joined(near.sum(1), rows.multiply(chosen, torch.relu(bank)))


def degrees(cohort: Cohort) -> Tensor:
    """[R] the sum of the weights of each row's edges, its self-loop of weight one not counted; computed once."""

    def compute(of: Cohort) -> Tensor:
        target = of.edges[1]
        weights = torch.ones(len(target), device=of.device) if of.edge_weights is None else of.edge_weights
        return (torch.zeros(of.rows, device=of.device).index_add_(0, target, weights) - 1.0).clamp_min_(0.0)

    found: Tensor = cohort.once("degrees without loops", compute)
    return found


def expanded_gcn(
    cohort: Cohort, h: Tensor, more: Joined, weight: Tensor, bias: Tensor, training: bool = False
) -> Tensor:
    """A graph convolution over the graph with look-alikes: D^-1/2 (A + I) D^-1/2 h W + b, at all or at the training nodes.

    A node's degree counts its look-alikes; a look-alike has the degree of the node that it is joined to, so that it weighs as
    much as the node itself.
    """
    before = degrees(cohort) + 1.0
    after = before + more.count
    shrunk = (before / after).sqrt().unsqueeze(1)
    extra = more.total / after.unsqueeze(1)
    rows: Rows = cohort.training if training else cohort
    if training:
        index = cohort.training.index
        mixed = torch.addcmul(extra[index], cohort.training.gcn @ (h * shrunk), shrunk[index])
    else:
        mixed = torch.addcmul(extra, cohort.gcn @ (h * shrunk), shrunk)
    return layers.linear(rows, mixed, weight, bias)


def expanded_sage(
    cohort: Cohort, h: Tensor, more: Joined, weight: Tensor, root: Tensor, bias: Tensor, training: bool = False
) -> Tensor:
    """A GraphSAGE layer over the graph with look-alikes: their mean with the neighbours' times W, plus h R + b."""
    before = degrees(cohort)
    after = (before + more.count).clamp_min(1.0)
    kept = (before / after).unsqueeze(1)
    extra = more.total / after.unsqueeze(1)
    rows: Rows = cohort.training if training else cohort
    if training:
        index = cohort.training.index
        mixed, own = torch.addcmul(extra[index], cohort.training.mean @ h, kept[index]), h[index]
    else:
        mixed, own = torch.addcmul(extra, cohort.mean @ h, kept), h
    return rows.add(rows.multiply(mixed, weight) + rows.multiply(own, root), bias)
