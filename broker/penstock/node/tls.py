"""The files of TLS: read when the broker starts and checked while it runs, so that a new certificate needs no restart.

An invalid file at the start stops it; a later one is logged, and the old certificate stays in use. This module knows
nothing of handshakes.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from penstock.kit.logging import logger
from penstock.native import NamedCertificate, Tls
from penstock.node.config import Settings, StartError

LOOK_SECONDS: Final = 5.0
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_log = logger("tls")


class TlsFiles:
    """The TLS files that `settings` name; used only if they name a certificate."""

    def __init__(self, settings: Settings, certificate: Path, key: Path) -> None:
        self._settings = settings
        self._certificate = certificate
        self._key = key
        self._seen: dict[Path, bytes] = {}
        self._expiries: dict[str, float] = {}
        self._served = self._new_context()
        self.context = self._new_context()
        """For listeners in Python, once and for all: each handshake goes on with the context that is served then.
        One that is in use can be given more authorities, and none can be taken from it."""
        self.context.sni_callback = self._turn_to_served

    def load(self) -> Tls:
        """Return the material that the native listener serves. Raises StartError naming what cannot be used."""
        try:
            self._seen = self._read()
            tls = self._tls(self._seen)
            expiries = self._expiries_in(self._seen)
            self._served = self._loaded_context()
            self.context.load_cert_chain(self._certificate, self._key)
            self._expiries = expiries
        except OSError as error:
            raise StartError(f"the TLS files cannot be used: {_reason(error)}") from error
        except ValueError as error:
            raise StartError(
                f"TLS cannot be started: {error}; check tls_certificate, tls_key and tls_client_ca"
            ) from error
        return tls

    async def watch(self, serve: Callable[[Tls], None]) -> None:
        """Pass changed files to `serve` until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            tls = await asyncio.to_thread(self.reload)
            if tls is not None:
                serve(tls)

    def reload(self) -> Tls | None:
        """Return the new material, if a file changed and all files can be used."""
        try:
            found = self._read()
            if found == self._seen:
                return None
            self._seen = found
            tls = self._tls(found)
            expiries = self._expiries_in(found)
            self._served = self._loaded_context()
            self._expiries = expiries
        except (OSError, ValueError, StartError) as error:
            _log.warning("changed TLS files cannot be used; the old certificate stays", reason=_reason(error))
            return None
        _log.info("certificates reloaded", certificate=str(self._certificate))
        return tls

    def expiries(self) -> Mapping[str, float]:
        """Return when each certificate that is served, or one of its chain, expires: seconds since 1970, by file."""
        return self._expiries

    def _expiries_in(self, content: dict[Path, bytes]) -> dict[str, float]:
        # A broker without TLS does not load this package, which takes 10 MB.
        from cryptography import x509

        served = [path for path in content if path == self._certificate or path.suffix == ".crt"]
        return {
            path.name: min(
                each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(content[path])
            )
            for path in served
            if path != self._settings.tls_client_ca
        }

    def _turn_to_served(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._served

    def _loaded_context(self) -> ssl.SSLContext:
        context = self._new_context()
        context.load_cert_chain(self._certificate, self._key)
        return context

    def _new_context(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = _VERSIONS[settings.tls_version_min]
        # Whoever resumes a session is not held against the authorities again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if settings.tls_client_ca is not None:
            try:
                context.load_verify_locations(settings.tls_client_ca)
            except OSError as error:
                raise StartError(f"tls_client_ca {settings.tls_client_ca} cannot be used: {_reason(error)}") from error
            # Probes have no certificate: who may read the figures is checked for each request.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _read(self) -> dict[Path, bytes]:
        settings = self._settings
        paths = [self._certificate, self._key]
        paths += [settings.tls_client_ca] if settings.tls_client_ca is not None else []
        if settings.tls_names_dir is not None:
            for certificate in sorted(settings.tls_names_dir.glob("*.crt")):
                paths += [certificate, certificate.with_suffix(".key")]
        return {path: path.read_bytes() for path in paths}

    def _tls(self, content: dict[Path, bytes]) -> Tls:
        settings = self._settings
        own = (self._certificate, self._key, settings.tls_client_ca)
        named = [path for path in content if path not in own and path.suffix == ".crt"]
        return Tls(
            content[self._certificate],
            content[self._key],
            client_authorities=content[settings.tls_client_ca] if settings.tls_client_ca is not None else None,
            client_required=settings.tls_client_auth == "required",
            client_users=settings.tls_client_user != "none",
            only_13=settings.tls_version_min == "1.3",
            named=[
                NamedCertificate(name=path.stem, chain=content[path], key=content[path.with_suffix(".key")])
                for path in named
            ],
        )


def check_tls(settings: Settings) -> None:
    """Raise StartError if a broker could not use the TLS files that the settings name."""
    files = tls_files(settings)
    if files is not None:
        files.load()


def _reason(error: Exception) -> str:
    """Return what is wrong, with the file's name, and without the number of the error."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if isinstance(error, ssl.SSLError):
        return f"OpenSSL refuses them: {error.reason or error.strerror}"
    why = error.strerror.lower()
    return why if error.filename is None else f"'{error.filename}': {why}"


def tls_files(settings: Settings) -> TlsFiles | None:
    """None when no certificate is named: plaintext."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return TlsFiles(settings, settings.tls_certificate, settings.tls_key)
