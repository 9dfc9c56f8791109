"""Where a message goes, as pure functions: the reference for the native tables, and what turns routes into them."""

from penstock.routing.router import Routable, route

__all__ = ["Routable", "route"]
