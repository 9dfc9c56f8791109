"""Consumers of queues and of streams, which AMQP consumes in the same way; messages of streams cannot be got singly."""

from typing import NamedTuple

from penstock.frontends.amqp.errors import GetFromStreamError
from penstock.frontends.native import vhost_of
from penstock.model.errors import InvalidArgumentError
from penstock.native import OpenConsume, OpenGet
from penstock.services import Principal, Services


class Admitted(NamedTuple):
    """The fields of an admission, as the listener takes them."""

    vhost: str
    queue_id: int
    user: str
    by_key: bool


async def admit_consumer(
    services: Services, principal: Principal, question: OpenConsume | OpenGet, *, again: bool
) -> Admitted:
    """Admit a consumer, or one that gets messages singly. Raises a refusal when it may not."""
    admission, vhost = services.admission, vhost_of(question.vhost)
    if isinstance(question, OpenConsume):
        found = await admission.open_consumer(principal, vhost, question.queue, may_be_stream=True, again=again)
    else:
        try:
            found = await admission.get(principal, vhost, question.queue, again=again)
        except InvalidArgumentError as refusal:
            # Other queues are refused for other reasons.
            if refusal.field == "queue":
                raise GetFromStreamError(refusal.thing, refusal.rule, "consume it", field="queue") from refusal
            raise
    return Admitted(found.vhost, found.queue_id, principal.name, found.by_key)
