"""Pieces of archives for Arrow Flight: the listener asks with a ticket for what the log has no more, piece by piece.
Each asks anew whether its reader still may."""

import json
from typing import Any

from penstock.frontends.grpc.convert import vhost_of
from penstock.services import Principal, Services


async def read_archive(services: Services, principal: Principal, payload: bytes) -> bytes:
    """Return a piece. The ticket is the listener's own: it was parsed and bounded there."""
    ticket: dict[str, Any] = json.loads(payload)
    place, span = vhost_of(ticket["vhost"]), (ticket["from"], ticket["to"])
    return await services.streams.read_archive(principal, place, ticket["partition"], span, ticket.get("columns"))
