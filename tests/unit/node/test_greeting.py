"""The lines a broker prints when it is ready."""

from penstock.node.config import load_settings
from penstock.node.greeting import greeting
from penstock.node.state import BrokerState


class Clock:
    def monotonic(self):
        return 0.0

    def now_ms(self):
        return 0


def greeted(grpc="127.0.0.1:5680", *, has_default_user=True, **flags):
    state = BrokerState("1.2.3", "node-1", "/data", Clock())
    if grpc:
        state.listeners["grpc"] = grpc
    if "metrics" in flags:
        state.listeners["metrics"] = flags["metrics"]
    settings = load_settings(flags=flags, environment={})
    return greeting(settings, state, has_default_user=has_default_user)


def test_it_names_what_one_needs_to_begin():
    text = greeted()

    for part in ("1.2.3", "127.0.0.1:5680", "/data", "guest with password guest"):
        assert part in text
    assert "publish 'Hello, Penstock!' -r hello && " in text
    assert "--uri" not in text


def test_an_unusual_address_stands_in_the_line_to_paste():
    assert "--uri penstock://guest:guest@127.0.0.1:7000/" in greeted("0.0.0.0:7000")


def test_a_chosen_password_is_not_printed():
    text = greeted(default_password="secret")

    assert "secret" not in text
    assert "USER:PASSWORD" in text


def test_without_a_listener_there_is_nothing_to_paste():
    assert "paste" not in greeted("").lower()


def test_a_broker_with_tls_names_addresses_that_answer():
    text = greeted("0.0.0.0:7000", tls_certificate="server.crt", tls_key="server.key", metrics="0.0.0.0:15692")

    assert "--uri 'penstocks://guest:guest@127.0.0.1:7000/?ca=CA_FILE'" in text
    assert "https://127.0.0.1:15692/metrics" in text
    assert " penstock://" not in text
