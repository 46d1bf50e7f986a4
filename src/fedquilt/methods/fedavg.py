"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.

Every client trains from the common model; the server averages what comes back, weighted by training nodes, and sends the
average to all. There is one model for everybody, so clients whose graphs differ pull it apart.

As in the subgraph papers, a client is evaluated with its model after its own local epochs; Adam's moments stay at home.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import State, register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.settings import BackboneSettings
from fedquilt.methods.sums import mean_of_sums, weighted_summands

TRAIN_NODES = TensorSpec("train_nodes", "How many training nodes the client has.", count=True)
PRESENT = TensorSpec("present", "A one: added up, how many clients took part.", count=True)
WEIGHTS = TensorSpec(
    MODEL + "*",
    "The client's model after training: an attacker with it may infer properties of the client's nodes.",
    weights=True,
)
AVERAGE = TensorSpec(MODEL + "*", "The average of the participants' models.", shared=True)


@register("fedavg")
class FedAvg(BackboneMethod):
    """Average all weights over the participants, weighted by training nodes."""

    title = "FedAvg"
    paper = "McMahan et al., AISTATS 2017"
    Settings = BackboneSettings
    searched = (*BackboneMethod.searched, "hidden")
    admits = True
    newcomers = "A newcomer is given the last average, and trains it further; it sends nothing."
    uploads: ClassVar[tuple[TensorSpec, ...]] = (WEIGHTS, TRAIN_NODES)
    downloads: ClassVar[tuple[TensorSpec, ...]] = (AVERAGE,)
    any_module = True
    single_uploads = ""

    def shares(self, name: str) -> bool:
        """Whether the model's weight `name` is averaged with the others'."""
        return True

    def averages(self) -> bool:
        """All that is sent."""
        return True

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The shared weights and the number of training nodes."""
        message: Message = {MODEL + name: w for name, w in personal.items() if self.shares(name)}
        return message | {"train_nodes": cohort.train_count}

    def summands(self, uploads: Message) -> State:
        """n_m w_m for every shared weight, and n_m."""
        return weighted_summands(uploads, TRAIN_NODES.name)

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """sum_m n_m w_m / sum_m n_m."""
        return {**mean_of_sums(sums, TRAIN_NODES.name)}

    def server_start(self) -> tuple[State, Message]:
        """What the averaging rule needs; nothing is sent."""
        return self.previous_start(), {}

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """sum_m n_m w_m / sum_m n_m for every shared weight."""
        nodes = dense(uploads["train_nodes"])
        return self.average_all(server, {n: dense(value) for n, value in uploads.items() if n != "train_nodes"}, nodes)
