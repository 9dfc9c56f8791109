"""Admission to the message paths: from the listener's questions to verbs. The listener keeps the answer."""

from penstock.model.names import DEFAULT_VHOST
from penstock.native import (
    Admittable,
    OpenConsume,
    OpenGet,
    OpenPublish,
    OpenRead,
    OpenSettle,
    PermitExchange,
    PermitKeys,
    PermitUserId,
)
from penstock.services import Admission, Principal, Services


def vhost_of(name: str) -> str:
    """Return the name; an empty one is the default virtual host's."""
    return name or DEFAULT_VHOST


async def admit(services: Services, principal: Principal, question: Admittable, *, again: bool) -> Admission:
    """Return what the principal is admitted to. Raises a refusal when it may not."""
    admission, vhost = services.admission, vhost_of(question.vhost)
    match question:
        case OpenPublish():
            return await admission.open_publisher(principal, vhost, again=again)
        case PermitExchange(exchange=exchange):
            return await admission.publish(principal, vhost, exchange)
        case PermitUserId():
            return await admission.publish_as_another(principal, vhost)
        case OpenConsume(queue=queue):
            return await admission.open_consumer(principal, vhost, queue, again=again)
        case OpenGet(queue=queue):
            return await admission.get(principal, vhost, queue, again=again)
        case OpenSettle(queue=queue):
            return await admission.settle(principal, vhost, queue)
        case OpenRead(partition=partition, group=group, single_active=single_active, from_replica=from_replica):
            if from_replica and not group:
                found = await admission.open_reader_of_replica(principal, vhost, partition, again=again)
                if found is not None:
                    return found
            return await admission.open_reader(
                principal, vhost, partition, group=group, single_active=single_active, again=again
            )


async def permit_keys(services: Services, principal: Principal, question: PermitKeys) -> list[bool]:
    """Return for each routing key whether the principal may publish with it to the exchange that it was admitted to."""
    vhost = vhost_of(question.vhost)
    return await services.admission.publish_keys(principal, vhost, question.exchange, question.keys)
