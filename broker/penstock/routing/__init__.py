"""Where a message goes, as pure functions: the reference for the native tables, and what turns routes into them."""

from penstock.routing.compile import CompiledRoute, compile_route
from penstock.routing.router import Routable, route

__all__ = ["CompiledRoute", "Routable", "compile_route", "route"]
