"""The server side: that of the installed fedquilt."""

from fedquilt.federation.server_app import app

__all__ = ["app"]
