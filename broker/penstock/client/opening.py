"""Chooses what carries a connection, and says hello to the broker so that a wrong address or password shows at once."""

from dataclasses import dataclass, field, replace
from importlib import import_module
from secrets import token_hex

from penstock.client.bounds import Bounds
from penstock.client.errors import AccessRefusedError, ConnectionLostError, PenstockError, from_status
from penstock.client.limit_calls import get_limits
from penstock.client.steps import drive
from penstock.client.transport import PublisherOptions, Transport, TransportOptions
from penstock.client.uri import Address, parse_uri

__all__ = ["Options", "greet", "open_transport"]

DURABILITIES = {None: 0, "os": 1, "disk": 2, "replicated": 3}
DRAWN_PREFIX = "client/"
# How a listener that speaks TLS ends a plaintext connection, as the layers below tell it.
_TLS_ENDS = ("frame with invalid size", "broken pipe", "connection reset", "socket closed")


# The reasons why TLS handshakes fail, each with the parts of the lower-case errors of the libraries that stand for it.
_TLS_REASONS = {
    "uses a CA certificate (CA:TRUE); configure the broker with a certificate signed by that CA": (
        "causedasendentity",
    ),
    "uses a certificate for another name; connect by a name in the certificate": (
        "notvalidforname",
        "not valid for name",
        "hostname mismatch",
        "hostname verification",
    ),
    "uses an expired certificate; renew it": ("expired",),
    "uses a certificate that is not valid yet; check the clocks": ("notvalidyet",),
    "uses a certificate that is not trusted; name its CA with ?ca=FILE": (
        "unknownissuer",
        "badsignature",
        "self signed",
        "self-signed",
        "unable to get local issuer",
        "certificate_verify_failed",
    ),
    "requires a client certificate; name one with ?cert=FILE&key=FILE": ("certificaterequired", "certificate required"),
    "does not serve TLS; use penstock://": ("invalidcontenttype", "wrong_version_number"),
}


def _tls_reason(text: str) -> str:
    """Return why a handshake failed and what to do, or nothing for other errors."""
    lowered = text.lower()
    return next((reason for reason, parts in _TLS_REASONS.items() if any(part in lowered for part in parts)), "")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a connection. `timeout` in seconds bounds calls and waits for confirms."""

    address: Address
    native: bool | None
    durability: str | None
    timeout: float
    bounds: Bounds | None = None
    deduplicate: bool = False
    # The names of producers that were drawn, which the connection gives up when it closes.
    drawn: list[str] = field(default_factory=list)

    @classmethod
    def read(
        cls, uri: str, native: bool | None, durability: str | None, timeout: float, deduplicate: bool = False
    ) -> "Options":
        if durability not in DURABILITIES:
            raise ValueError(f"durability is {durability!r}; it must be 'os', 'disk', 'replicated' or None")
        if not 0 < timeout <= 86_400:
            raise ValueError(f"timeout is {timeout}; it must be more than 0 and at most 86,400 seconds")
        return cls(parse_uri(uri), native, durability, timeout, deduplicate=deduplicate)

    @property
    def timeout_ms(self) -> int:
        return max(1, int(self.timeout * 1000))

    @property
    def publisher(self) -> PublisherOptions:
        return PublisherOptions(vhost=self.address.vhost, durability=DURABILITIES[self.durability])

    def new_publisher(self) -> PublisherOptions:
        """Return the options of a publisher without a name. To deduplicate, it gets one that is drawn for it."""
        if not self.deduplicate:
            return self.publisher
        name = DRAWN_PREFIX + token_hex(16)
        self.drawn.append(name)
        return replace(self.publisher, producer=name, numbers_itself=True)


def open_transport(options: Options) -> Transport:
    """Return the native transport if it is installed and not declined. It does not connect yet."""
    limits = TransportOptions(connect_timeout_ms=min(options.timeout_ms, TransportOptions().connect_timeout_ms))
    if options.bounds is not None:
        limits = replace(limits, message_bytes_max=options.bounds.bytes_max)
    if options.native is not False:
        try:
            native = import_module("penstock.client.native")
        except ImportError as error:
            if options.native:
                raise PenstockError("the native module is not there; connect with native=None or False") from error
        else:
            found: Transport = native.NativeTransport(options.address, limits)
            return found
    pure: Transport = import_module("penstock.client.pure").PureTransport(options.address, limits)
    return pure


def greet(transport: Transport, options: Options) -> None:
    """Check the address, the credentials and the vhost. Raise NotFoundError if the broker has no such vhost."""

    def call(method: str, payload: bytes) -> bytes:
        return transport.call(method, payload, options.timeout_ms)

    try:
        # Its cost does not depend on how many vhosts, queues or users there are.
        drive(get_limits(options.address.vhost), call)
    except transport.rpc_error as error:
        refusal = from_status(*error.args)
        if isinstance(refusal, AccessRefusedError):
            # The broker knows the user. What they may do, each verb says.
            return
        target = ", ".join(options.address.targets)
        if options.address.tls is None and any(end in str(refusal).lower() for end in _TLS_ENDS):
            text = f"{target} ended a plaintext connection ({refusal}); if it serves TLS, use penstocks://"
            raise ConnectionLostError(text, code=refusal.code) from error
        if options.address.tls is not None and (reason := _tls_reason(str(refusal))):
            raise ConnectionLostError(f"{target} {reason} ({refusal})", code=refusal.code) from error
        if isinstance(refusal, ConnectionLostError):
            text = f"no broker answers at {target}: {refusal}; is it running there?"
            raise ConnectionLostError(text, code=refusal.code) from error
        raise refusal from error
