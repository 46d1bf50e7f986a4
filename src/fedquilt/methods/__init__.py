"""Federated methods, one file each."""

from fedquilt.methods.contract import Method, Task, Update, find_method, methods, register

__all__ = ["Method", "Task", "Update", "find_method", "methods", "register"]
