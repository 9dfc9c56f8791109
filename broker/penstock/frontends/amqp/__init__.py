"""AMQP 0-9-1: sockets and messages are native, and what a method asks for besides is decided here, call by call."""

from penstock.frontends.amqp.server import AmqpProtocol

__all__ = ["AmqpProtocol"]
