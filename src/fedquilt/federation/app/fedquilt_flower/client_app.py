"""The client side: that of the installed fedquilt."""

from fedquilt.federation.client_app import app

__all__ = ["app"]
