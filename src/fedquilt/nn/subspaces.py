"""The subspaces that clients' spectral energies span, as projectors."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.devices.device import on_host
from fedquilt.errors import DivergedError
from fedquilt.nn.matrix_sign import largest_eigenvalue, matrix_sign

RANK_TOLERANCE = 0.01  # singular values up to this share of the largest count as zero
NEAREST = 1e-7  # an eigenvalue that is so near to the tolerance counts in part
NEARLY, SMALLEST = 0.99, 1e-200


def projectors(energies: Tensor) -> Tensor:
    """Q Q^T onto the column space of each client's energies E (eq. 11): [n, d, K + 1] -> [n, d, d].

    The singular vectors that count are those of E E^T whose eigenvalues are above `RANK_TOLERANCE` squared of the largest, and
    S = (1 + sign(E E^T - tolerance)) / 2 projects onto them (`matrix_sign`). Where E has fewer columns than rows, S is that of
    E^T E, and Q Q^T = E S (S E^T E S)^-1 S E^T, the inverse being that on the range of S.
    """
    if on_host(energies) and not bool(torch.isfinite(energies).all()):
        raise DivergedError("the spectral energies of a client are not finite")
    e = energies.double()
    narrow = e.shape[2] < e.shape[1]
    gram = e.mT @ e if narrow else e @ e.mT
    largest = largest_eigenvalue(gram).clamp_min(SMALLEST)[:, None, None]
    gram, eye = gram / largest, torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    # A little less than gram - tolerance, so that rounding leaves no eigenvalue above one.
    kept = 0.5 * (eye + matrix_sign(NEARLY * (gram - RANK_TOLERANCE**2 * eye), NEAREST))
    if not narrow:
        return kept.float()
    root = torch.linalg.cholesky_ex(kept @ gram @ kept + eye - kept).L
    basis = torch.linalg.solve_triangular(root, kept @ (e / largest.sqrt()).mT, upper=False)
    return (basis.mT @ basis).float()
