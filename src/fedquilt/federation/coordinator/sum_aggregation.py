"""The server's step where it has only the sum of the uploads."""

from __future__ import annotations

from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import Method, State

_ROUNDING = 1.0 + 1e-6


class SumAggregation:
    """`Method.aggregate_sums`, refused where no honest uploads can have led to its result.

    Args:
        method: whose server it is.
        range: the largest size of a number in an upload; an average is not larger.
    """

    def __init__(self, method: Method, range: float) -> None:
        self.method, self.range = method, range

    def __call__(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """The receivers' downloads; changes `server` in place. `uploads` has the sum once for each sender (`SecureEngine`)."""
        new_server = {name: tensor.clone() for name, tensor in server.items()}
        sums = {name: dense(value)[0] for name, value in uploads.items()}
        down = self.method.aggregate_sums(new_server, sums, receivers)
        if not all(bool((dense(value).abs() <= self.range * _ROUNDING).all()) for value in down.values()):
            raise FedquiltError(
                "The sum of this round leads to an average that no uploads can have: a site did not keep to the protocol, "
                "and secure aggregation hides which; start a new run without the sites that you do not trust."
            )
        server.update(new_server)
        return down
