"""FedPer: Arivazhagan et al., Federated Learning with Personalization Layers, 2019.

The graph layers are averaged as in FedAvg; the classifier stays at home. Clients share how to read their graphs and keep
to themselves which labels they see.
"""

from __future__ import annotations

from fedquilt.errors import FedquiltError
from fedquilt.messages.message import TensorSpec
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RunContext, register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.fedavg import TRAIN_NODES, FedAvg
from fedquilt.methods.settings import BackboneSettings


@register("fedper")
class FedPer(FedAvg):
    """FedAvg on the graph layers only."""

    title = "FedPer"
    paper = "Arivazhagan et al., 2019"
    newcomers = (
        "A newcomer is given the last average of the graph layers, and trains them with a classifier of its own; "
        "it sends nothing."
    )
    uploads = (
        TensorSpec(MODEL + "conv*", "The client's graph layers after training, without its classifier.", weights=True),
        TRAIN_NODES,
    )
    downloads = (TensorSpec(MODEL + "conv*", "The average of the participants' graph layers.", shared=True),)

    def __init__(self, settings: BackboneSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        shared = [name for name in self.shapes() if self.shares(name)]
        if len(shared) in (0, len(self.shapes())):
            raise FedquiltError(
                f"{self.title} averages the layers whose names begin with 'conv' and leaves the others at home; the backbone "
                f"'{settings.model}' has {', '.join(self.shapes())}: name its graph layers conv1, conv2, the last otherwise."
            )

    def shares(self, name: str) -> bool:
        """Graph layers yes, classifier no."""
        return name.startswith("conv")
