"""Pieces of archives for Arrow Flight: the listener asks for what the log has no more, piece by piece. The reader is
authorized for each piece."""

from penstock.frontends.grpc.convert import vhost_of
from penstock.native import ReadArchive
from penstock.services import Principal, Services


async def read_archive(services: Services, principal: Principal, question: ReadArchive) -> bytes:
    """Return a piece."""
    vhost, span = vhost_of(question.vhost), (question.first, question.end)
    return await services.streams.read_archive(principal, vhost, question.partition, span, question.columns)
