"""Loggers: a run's metrics in TensorBoard, MLflow and Weights & Biases. One interface, one file for each tool."""

from fedquilt.loggers.base import Logger, check_loggers, find_logger
from fedquilt.loggers.run_loggers import RunLoggers

__all__ = ["Logger", "RunLoggers", "check_loggers", "find_logger"]
