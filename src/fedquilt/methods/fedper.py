"""FedPer: Arivazhagan et al., Federated Learning with Personalization Layers, 2019.

The graph layers are averaged as in FedAvg; the classifier stays at home. Clients share how to read their graphs and keep
to themselves which labels they see.
"""

from __future__ import annotations

from fedquilt.messages.message import TensorSpec
from fedquilt.methods.base import register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.fedavg import TRAIN_NODES, FedAvg


@register("fedper")
class FedPer(FedAvg):
    """FedAvg on the graph layers only."""

    title = "FedPer"
    paper = "Arivazhagan et al., 2019"
    uploads = (
        TensorSpec(MODEL + "conv*", "The client's graph layers after training, without its classifier.", weights=True),
        TRAIN_NODES,
    )
    downloads = (TensorSpec(MODEL + "conv*", "The average of the participants' graph layers.", shared=True),)

    def shares(self, name: str) -> bool:
        """Graph layers yes, classifier no."""
        return name.startswith("conv")
