"""Publish orders: each is confirmed by the broker, and one that no queue takes comes back."""

import json
import os

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
EXCHANGE = "python-shop"
ORDERS = "python-orders"
REFUSED = "python-orders-refused"


def declare(channel: BlockingChannel) -> None:
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    channel.queue_declare(REFUSED, durable=True)
    # A rejected order is a dead letter: it goes to the queue of refused orders, through the default exchange.
    channel.queue_declare(
        ORDERS, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": REFUSED}
    )
    channel.queue_bind(ORDERS, EXCHANGE, "order.#")


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        declare(channel)
        channel.confirm_delivery()
        for number in range(1, 11):
            order = {"number": number, "amount": 0 if number == 7 else 10 * number}
            properties = pika.BasicProperties(
                content_type="application/json", delivery_mode=pika.DeliveryMode.Persistent, message_id=str(number)
            )
            # Returns after the confirm, when the order is stored.
            channel.basic_publish(EXCHANGE, "order.new", json.dumps(order).encode(), properties, mandatory=True)
        print("confirmed 10")
        try:
            channel.basic_publish(EXCHANGE, "invoice.new", b"{}", mandatory=True)
        except UnroutableError:
            print("returned 1: no queue takes invoice.new")


if __name__ == "__main__":
    main()
