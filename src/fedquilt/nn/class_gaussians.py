"""The classes of each client as Gaussians over its training nodes, and the labels that a network may read."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.group_sums import Groups
from fedquilt.devices.device import on_host
from fedquilt.nn.matrix_sign import largest_eigenvalue, matrix_sign
from fedquilt.tasks.node_classification import class_count, labels

THIN = 1e-6  # a covariance that is so much thinner in one direction than in another is taken for none
RAISED, LEAST_VARIANCE = 1e-4, 1e-2  # it is made as thick as that
NEAREST = 1e-8  # relative to a covariance, what is too near to its least eigenvalue to be told from it


def training_labels(cohort: Cohort) -> Tensor:
    """The labels of training nodes, one-hot, and zeros for all other nodes: [R, C]."""
    y = torch.zeros(cohort.rows, class_count(cohort), device=cohort.device)
    y[cohort.train, labels(cohort)[cohort.train]] = 1.0
    return y


@torch.no_grad()
def neighbouring_labels(cohort: Cohort) -> Tensor:
    """The same after a graph convolution's propagation: [R, C]."""
    return cohort.gcn @ training_labels(cohort)


def training_classes(cohort: Cohort) -> Groups:
    """The training nodes grouped by client and class: class c of client m is group m C + c."""
    classes = class_count(cohort)
    return Groups(cohort.client[cohort.train] * classes + labels(cohort)[cohort.train], cohort.clients * classes)


def class_gaussians(cohort: Cohort, mean: Tensor, logvar: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each client's classes as Gaussians over its training nodes: [T, d] -> [M, C, d], [M, C, d, d], [M, C].

    The moments of the mixture of the nodes' Gaussians: the mean of means; the covariance of means, shrunk toward its
    diagonal by n / (n + d) for n nodes, plus the mean of variances. A class without a node has mean 0 and covariance I.
    """
    width, classes = mean.shape[1], class_count(cohort)
    groups: Groups = cohort.once("training classes", training_classes)
    count, group = groups.counts.float(), groups.index
    share = (1.0 / count[group]).unsqueeze(1)
    centre = groups.sum(mean * share)
    gap = mean - centre[group]
    outer = (gap * share).unsqueeze(2) * gap.unsqueeze(1)
    spread = groups.sum(outer)
    within = groups.sum(logvar.exp() * share)
    kept = (count / (count + width))[:, None, None]
    diagonal = (1.0 - kept.squeeze(2)) * spread.diagonal(dim1=1, dim2=2) + within + (count == 0).unsqueeze(1)
    shape = (cohort.clients, classes)
    covariance = kept * spread + torch.diag_embed(diagonal)
    return centre.view(*shape, width), covariance.view(*shape, width, width), count.view(shape)


def sound_roots(covariance: Tensor) -> tuple[Tensor, Tensor | None]:
    """Cholesky's roots of covariances, and the covariances where some had to be repaired: [..., d, d].

    Noise that protects an upload (or a client that means no good) leaves matrices that are not positive definite, or hardly:
    those are `raised`. Always computed on an accelerator, where the host does not look whether there are any.
    """
    root, wrong = torch.linalg.cholesky_ex(covariance)
    pivot = root.diagonal(dim1=-2, dim2=-1).square()
    broken = (wrong > 0) | ~(pivot.amin(-1) > THIN * pivot.amax(-1))
    if on_host(covariance) and not bool(broken.any()):
        return root, None
    repaired = torch.where(broken[..., None, None], raised(covariance).to(covariance.dtype), covariance)
    return torch.linalg.cholesky_ex(repaired).L, repaired


def raised(covariance: Tensor) -> Tensor:
    """Covariances made symmetric, their eigenvalues raised to `RAISED` of the largest and to `LEAST_VARIANCE`: [..., d, d].

    With A = S - f I for the least eigenvalue f, it is f I + (A + |A|) / 2 with |A| = A sign(A) (`matrix_sign`).
    """
    some = torch.nan_to_num(covariance.double(), nan=0.0, posinf=0.0, neginf=0.0)
    some, eye = 0.5 * (some + some.mT), torch.eye(some.shape[-1], dtype=some.dtype, device=some.device)
    size = torch.linalg.matrix_norm(some, keepdim=True).clamp_min(LEAST_VARIANCE)  # no eigenvalue is larger
    largest = (largest_eigenvalue(some / size + eye) - 1.0)[..., None, None] * size
    least = (RAISED * largest).clamp_min(LEAST_VARIANCE)
    above, bound = some - least * eye, size + least
    sizes = above @ matrix_sign(above / bound, NEAREST)
    # What the sign leaves open is less than NEAREST of the bound; added, so that nothing is below `least` for it.
    return (least + NEAREST * bound) * eye + 0.25 * (above + above.mT + sizes + sizes.mT)
