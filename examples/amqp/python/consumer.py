"""Consume orders, at most 20 unacked at a time: ack what is handled, and reject what never can be.

The publisher has declared the queues. The consumer ends after 10 orders; if the broker restarts meanwhile, aio-pika
connects again and consumes on.
"""

import asyncio
import json
import os

import aio_pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
ORDERS = "python-orders"
REFUSED = "python-orders-refused"


async def main() -> None:
    connection = await aio_pika.connect_robust(URL)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=20)
        queue = await channel.get_queue(ORDERS)
        acked = rejected = 0
        async with queue.iterator() as messages:
            async for message in messages:
                order = json.loads(message.body)
                if order["amount"] > 0:
                    await message.ack()
                    acked += 1
                else:
                    await message.reject(requeue=False)
                    rejected += 1
                if acked + rejected == 10:
                    break
        print(f"acked {acked}, rejected {rejected}")

        refused = await channel.get_queue(REFUSED)
        # A rejected message arrives there a moment later, so it is waited for.
        async with refused.iterator(timeout=5) as letters:
            letter = await anext(aiter(letters))
            print(f"refused: order {letter.message_id}, {letter.headers['x-first-death-reason']}")
            await letter.ack()


if __name__ == "__main__":
    asyncio.run(main())
