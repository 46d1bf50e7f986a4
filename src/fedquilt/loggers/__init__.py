"""Logs in the tools that people already use: TensorBoard, MLflow, Weights & Biases. One small interface, one file each."""

from fedquilt.loggers.base import Logger, check_loggers, find_logger
from fedquilt.loggers.journal import Journal

__all__ = ["Journal", "Logger", "check_loggers", "find_logger"]
