"""Send tasks of all kinds to the worker: at once, later, with retries, with a priority; then ask who works."""

from shop_tasks import app, charge, remind, ship


def main() -> None:
    for order in range(1, 21):
        ship.apply_async([order])
    ship.apply_async([100], priority=9)  # before those that wait
    remind.apply_async(["ann"], countdown=2)
    charge.apply_async([7, 2])
    print("sent 23")
    for worker in app.control.ping(timeout=2):
        print("there is", *worker)


if __name__ == "__main__":
    main()
