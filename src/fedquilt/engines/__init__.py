"""Engines: who carries a round out. `in_process` has all clients in this process."""

from fedquilt.engines.contract import Engine, Report
from fedquilt.engines.in_process import InProcess

__all__ = ["Engine", "InProcess", "Report"]
