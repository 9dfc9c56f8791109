"""A client that declares and deletes queues at any broker while there are faults."""

from random import Random
from threading import Event, Thread
from typing import Any, Final

import grpc

from chaos.declarations import Declarations
from chaos.leader import open_channel
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import admin_pb2_grpc

__all__ = ["PREFIX", "Declarer"]

PREFIX: Final = "declared-"
CALL_S: Final = 20.0
PAUSE_S: Final = 0.1


class Declarer(Thread):
    """Declares a queue, looks for it at another broker, and deletes every other one, until it is stopped."""

    def __init__(self, vhosts: list[str], addresses: dict[str, str], credentials: Any, random: Random) -> None:
        super().__init__(name="declarer", daemon=True)
        self.found = Declarations()
        self.errors: dict[str, int] = {}
        self._vhosts = vhosts
        self._addresses = list(addresses.values())
        self._credentials = credentials
        self._random = random
        self._stopping = Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(PAUSE_S):
            self._declare(self._random.choice(self._vhosts), f"{PREFIX}{number}", deletes=number % 2 == 0)
            number += 1

    def _declare(self, vhost: str, name: str, *, deletes: bool) -> None:
        first, second = self._random.sample(self._addresses, 2)
        found, queue = self.found, (vhost, name)
        found.declares_asked.add(queue)
        request = admin.DeclareQueueRequest(vhost=vhost, queue=admin.Queue(name=name, durable=True))
        if self._call(first, "DeclareQueue", request) != "OK":
            return
        found.declares_answered.add(queue)
        look = admin.DeclareQueueRequest(vhost=vhost, queue=admin.Queue(name=name), passive=True)
        if self._call(second, "DeclareQueue", look) == "NOT_FOUND":
            found.not_found.append(f"queue {name} of {vhost} was declared, and another broker did not find it")
        if deletes:
            found.deletes_asked.add(queue)
            if self._call(second, "DeleteQueue", admin.DeleteQueueRequest(vhost=vhost, name=name)) == "OK":
                found.deletes_answered.add(queue)

    def _call(self, address: str, method: str, request: Any) -> str:
        """Return the name of the status."""
        with open_channel(address) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)
            try:
                getattr(stub, method)(request, metadata=self._credentials, timeout=CALL_S)
            except grpc.RpcError as error:
                code: str = error.code().name
                name = f"{method} {code}: {error.details()}"
                self.errors[name] = self.errors.get(name, 0) + 1
                return code
        return "OK"
