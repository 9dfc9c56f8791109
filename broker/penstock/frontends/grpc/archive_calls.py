"""Pieces of archives for Arrow Flight: the listener asks with a ticket for what the log has no more, piece by piece.
Each asks anew whether its reader still may."""

import json
from typing import Any

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import existing_queue_name, vhost_of
from penstock.services.ports import ArchivedPart


async def read_archive(context: Context, caller: Caller, payload: bytes) -> bytes:
    """The ticket is the listener's own: it was parsed and bounded there."""
    ticket: dict[str, Any] = json.loads(payload)
    name = vhost_of(ticket["vhost"])
    streams = context.vhosts.get(name).streams
    status = await streams.admit_archive(caller.actor(name), existing_queue_name(ticket["partition"]))
    if context.archives is None:
        return b""
    part = ArchivedPart(name, streams.stream_of(status.name), status.name, status.queue_id, status.state)
    return await context.archives.piece(part, ticket["from"], ticket["to"], ticket.get("columns"))
