"""A run of the clients: where the brokers are, and which cases of a suite are drawn.

The quick run draws some cases of each suite from a seed, which repeats them; the long run takes all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from conformance.clients.outcome import Outcome

ROOT = Path(__file__).resolve().parents[3]
EXPECTED_SKIPS = Path(__file__).with_name("expected_skips.toml")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: an authority's certificate, a client's that it signed, and a client's of another authority."""

    authority: Path
    client: Path
    client_key: Path
    foreign: Path
    foreign_key: Path


@dataclass(frozen=True, slots=True)
class Run:
    """Ports on 127.0.0.1 of a broker without TLS, also over WebSockets, of one with TLS and of one with a full disk.

    All know guest with the password guest. `grpc_uri` is that of the first. `work` keeps downloads and builds from run
    to run. `seed` is None if all cases run. `command` is the broker's.
    """

    plain_port: int
    web_port: int
    tls_port: int
    full_port: int
    grpc_uri: str
    certificates: Certificates
    work: Path
    seed: int | None
    command: str

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.plain_port}/%2F"

    def drawn(
        self, client: str, cases: Sequence[str], count_max: int, after: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return at most `count_max` of the cases in their order, or all of them in a long run.

        A case in `after` needs what the named one leaves, which is drawn with it and may be one too many.
        """
        if self.seed is None or len(cases) <= count_max:
            return list(cases)
        chosen = set(Random(f"{self.seed} {client}").sample(sorted(cases), count_max))
        chosen |= {before for case, before in (after or {}).items() if case in chosen}
        return [case for case in cases if case in chosen]


Runner = Callable[[Run], Outcome]
