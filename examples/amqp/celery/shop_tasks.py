"""Tasks of a shop for Celery, with Penstock as its broker; each writes to a file what it did."""

import os
from pathlib import Path
from time import sleep

from celery import Celery, Task
from kombu import Queue

app = Celery("shop_tasks", broker=os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672//"))
app.conf.update(
    # A task is acked when it has ended, so a worker or a broker that dies loses none: the task runs again.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    # Publishing returns after the broker's confirm, and is tried again while there is no broker.
    broker_transport_options={"confirm_publish": True},
    task_publish_retry_policy={"max_retries": 60, "interval_start": 0.2, "interval_step": 0.2, "interval_max": 1},
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    task_default_queue="shop",
    task_queues=[
        Queue("shop", durable=True, queue_arguments={"x-max-priority": 10}),
    ],
    task_ignore_result=True,
    worker_hijack_root_logger=False,
)


def note(text: str) -> None:
    """Append a line to the journal."""
    with Path(os.environ.get("SHOP_JOURNAL", "journal.txt")).open("a") as journal:
        journal.write(text + "\n")


@app.task
def ship(order: int, seconds: float = 0.0) -> None:
    """Ship an order; it may run twice, as every task that is acked late."""
    note(f"started {order}")
    sleep(seconds)
    note(f"shipped {order}")


@app.task
def remind(customer: str) -> None:
    """Remind a customer, usually later: `remind.apply_async(["ann"], countdown=3600)`."""
    note(f"reminded {customer}")


@app.task(bind=True, max_retries=5)
def charge(self: Task, order: int, failures: int) -> None:
    """Charge an order, and try again when the bank does not answer: here it does not so many times."""
    tries = self.request.retries
    note(f"charging {order}, try {tries + 1}")
    if tries < failures:
        raise self.retry(countdown=0.2)
    note(f"charged {order}")
