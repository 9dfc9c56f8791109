"""Routing of messages as pure functions: the reference for the native tables, and the compiler of routes for them."""

from penstock.routing.router import Routable, route

__all__ = ["Routable", "route"]
