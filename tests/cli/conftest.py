"""Fixtures that call commands."""

from support.command_line import call, here, refused

__all__ = ["call", "here", "refused"]
