"""The networks that methods train, by name in `Model.kinds`: importing this module makes all of them known.

`fedquilt.nn.model` says what a model is.
"""

from fedquilt.nn.layer_models import Gat, Gcn, Gcnii, Gin, Mlp, Sage
from fedquilt.nn.model import Model, Network, Output, Shapes, activate, common_start, matrices, part
from fedquilt.nn.propagation_models import Appnp, Gamlp, Sgc

__all__ = [
    "Appnp",
    "Gamlp",
    "Gat",
    "Gcn",
    "Gcnii",
    "Gin",
    "Mlp",
    "Model",
    "Network",
    "Output",
    "Sage",
    "Sgc",
    "Shapes",
    "activate",
    "common_start",
    "matrices",
    "part",
]
