"""fedquilt: one personal graph neural network per data owner, trained together, without moving anyone's graph."""

__version__ = "0.1.0"
