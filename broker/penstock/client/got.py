"""Getting without a stream: the call of `get`, and messages that settle themselves by a call on its connection."""

from collections.abc import Callable

from penstock.client.messages import ReceivedMessage
from penstock.client.steps import Call
from penstock.v1 import messaging_pb2

__all__ = ["GotMessage", "get_call", "read_got"]

SERVICE = "/penstock.v1.MessagingService/"


class GotMessage(ReceivedMessage):
    """A message that `get` took; `settle_call` sends its one settlement."""

    __slots__ = ("_queue", "_settle_call", "_vhost")

    def __init__(
        self,
        delivery: messaging_pb2.Delivery,
        vhost: str,
        queue: str,
        auto_ack: bool,
        settle_call: Callable[[Call], None],
    ) -> None:
        super().__init__(delivery, is_settled=auto_ack)
        self._vhost = vhost
        self._queue = queue
        self._settle_call = settle_call

    def _settle(self, outcome: int) -> None:
        request = messaging_pb2.SettleRequest(vhost=self._vhost, queue=self._queue)
        request.settlement.ranges.add(first=self.sequence, last=self.sequence)
        request.settlement.outcome = messaging_pb2.Outcome.Name(outcome)  # type: ignore[assignment]
        self._settle_call((SERVICE + "Settle", request.SerializeToString()))


def get_call(vhost: str, queue: str, auto_ack: bool) -> Call:
    request = messaging_pb2.GetRequest(vhost=vhost, queue=queue, count_max=1, auto_ack=auto_ack)
    return SERVICE + "Get", request.SerializeToString()


def read_got(answer: bytes) -> messaging_pb2.Delivery | None:
    """Return the delivery in the answer of `get`, if the queue had one."""
    deliveries = messaging_pb2.GetResponse.FromString(answer).deliveries
    return deliveries[0] if deliveries else None
