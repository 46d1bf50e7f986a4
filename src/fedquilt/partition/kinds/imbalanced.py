"""imbalanced: METIS parts merged into clients of unequal size."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.groups import groups
from fedquilt.partition.kind import Drawn, Option, register_kind
from fedquilt.partition.metis import cut

FEDPUB_SIZES = [5, 3, 2, 2, 2, 2, 1, 1, 1, 1]  # METIS parts of each client by default; see `imbalanced`


@register_kind(
    "imbalanced",
    "METIS parts merged at random into clients of unequal size (5, 3, 2, 2, 2, 2, 1, 1, 1, 1 of 20 parts)",
    options=[Option("sizes", list, "the number of METIS parts of each client")],
    clients="optional",
)
def imbalanced(graph: Graph, clients: int | None, seed: int, sizes: list[int] | None = None) -> Drawn:
    """FED-PUB's Figure 12: METIS into sum(sizes) parts; client i gets sizes[i] of them, chosen at random.

    The paper cuts into 20 parts, merges "five, three, two, two, and two" and calls the result ten clients. But those 14 parts
    and the 6 single ones make eleven. The default keeps both the 20 parts and the ten clients by merging one more pair:
    5, 3, 2, 2, 2, 2, 1, 1, 1, 1. The literal reading is `sizes=[5, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1]`. The paper does not say
    which parts are merged; here the seed decides.
    """
    if sizes is None:
        if clients not in (None, len(FEDPUB_SIZES)):
            raise FedquiltError(
                f"An imbalanced partition has {len(FEDPUB_SIZES)} clients unless told otherwise; for "
                f"{clients} clients give {clients} sizes."
            )
        sizes = FEDPUB_SIZES
    if clients not in (None, len(sizes)):
        raise FedquiltError(
            f"{len(sizes)} sizes were given for {clients} clients; give one size for each client, or only the sizes."
        )
    parts = sum(sizes)
    labels = cut(graph, parts)
    stream = numpy_stream(seed, "partition", "imbalanced")
    owner = stream.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return groups(owner[labels], len(sizes)), {"parts": parts, "sizes": list(sizes)}
