"""Federated methods, one file each."""

from fedquilt.methods.contract import Method, Task, find_method, methods, register

__all__ = ["Method", "Task", "find_method", "methods", "register"]
