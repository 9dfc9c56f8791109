"""The Flight action DescribeStreams as plain pyarrow asks it."""

import base64
import json
from typing import Any

from pyarrow import flight

from support.broker import Broker

Found = dict[str, Any]


class Describer:
    """Asks for the action with the credentials of a user."""

    def __init__(self, broker: Broker, vhost: str, user: str = "guest:guest") -> None:
        self.client = flight.FlightClient(f"grpc://{broker.address}")
        token = base64.b64encode(user.encode()).decode()
        self.headers = [(b"authorization", f"Basic {token}".encode())]
        self.options = flight.FlightCallOptions(headers=self.headers)
        self.vhost = vhost

    def ask(self, body: dict[str, Any] | bytes, kind: str = "DescribeStreams") -> list[Found]:
        content = body if isinstance(body, bytes) else json.dumps({"vhost": self.vhost, **body}).encode()
        (result,) = self.client.do_action(flight.Action(kind, content), self.options)
        found: list[Found] = json.loads(result.body.to_pybytes())["partitions"]
        return found

    def one(self, stream: str, **more: Any) -> Found:
        (found,) = self.ask({"streams": [stream], **more})
        return found
