"""Parts of archives for Arrow Flight.

The listener asks for a part that is no longer in the log; the reader is authorized for each part.
"""

from penstock.frontends.native import vhost_of
from penstock.native import ReadArchive
from penstock.services import ArchivedRows, Principal, Services


async def read_archive(services: Services, principal: Principal, question: ReadArchive) -> bytes:
    """Return a piece."""
    header = question.header_is
    wanted = ArchivedRows(
        question.first,
        question.end,
        question.columns,
        question.key_is,
        question.routing_key_is,
        None if header is None else (header.name, header.value),
        question.skip_unreadable,
    )
    return await services.streams.read_archive(principal, vhost_of(question.vhost), question.partition, wanted)
