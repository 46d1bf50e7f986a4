"""Federated methods, one file each."""

from fedquilt.methods.base import Method, RunContext, Update, find_method, methods, register

__all__ = ["Method", "RunContext", "Update", "find_method", "methods", "register"]
