"""TLS beside plaintext: the same load on two brokers in the same minute, one with certificates of a test CA."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import trustme

from bench.measure import Load
from bench.rows import BATCHED, Figure, Row, cpu, rate, throughput
from support import Broker

__all__ = ["TLS_ROWS"]

HOST = "127.0.0.1"
batched = throughput(16, 100, 1)


class SecuredBroker(Broker):
    """Serves TLS on the gRPC port; health and metrics stay plaintext, as the figures do not use them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        authority = trustme.CA()
        certificate = authority.issue_cert(HOST)
        self._authority = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self._authority))
        certificate.private_key_pem.write_to_path(str(folder / "server.key"))
        (folder / "server.crt").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        settings = folder / "broker.toml"
        settings.write_text(
            f'tls_certificate = "{folder}/server.crt"\ntls_key = "{folder}/server.key"\nmetrics_tls = false\n'
        )
        super().__init__(folder / "data", "--config", str(settings))

    def uri(self, vhost: str = "", user: str = "guest", password: str = "guest") -> str:
        query = urlencode({"ca": str(self._authority)})
        return f"penstocks://{user}:{password}@{self.address}/{vhost}?{query}"


def secured_beside_plain(load: Load) -> dict[str, float]:
    """Return the figures; `ratio` is the remaining share of the plaintext rate."""
    plain = batched(load)
    with SecuredBroker(load.broker.data_dir.absolute().parent / "secured") as broker:
        secured = batched(replace(load, broker=broker))
    return {**secured, "plain": plain["rate"], "ratio": secured["rate"] / plain["rate"]}


TLS_ROWS = (
    Row(
        "tls-batched",
        f"{BATCHED}; over TLS 1.3, beside plaintext",
        (rate(None), Figure("plain", "msg/s"), Figure("ratio", "times", 0.6), cpu()),
        secured_beside_plain,
    ),
)
