"""The run config: what is wrong is a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FederationConfig


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"method": "fedpup"}, "did you mean 'fedpub'"),
        ({"rounds": 0}, "'rounds' is not possible"),
        ({"settings": "{"}, "'settings' is not"),
        ({"metric": "f1"}, "no metric 'f1'"),
        ({"sites": 2, "min-sites": 3}, "min-sites is 3 and there are 2 sites"),
        ({"out": ""}, "'out' is not possible"),
    ],
)
def test_a_wrong_configuration_is_a_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        FederationConfig.read({"out": "run", **values})
