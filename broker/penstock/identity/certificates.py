"""Finds the user whom a client's certificate names.

The handshake has checked the signature and the dates. Here the certificate's name becomes a user of `users.json`, who
needs no password.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.identity import User
from penstock.model.errors import NotAuthenticatedError

Rule: TypeAlias = Literal["none", "cn", "san_dns", "san_email", "san_uri"]
_KINDS: Final = {"san_dns": x509.DNSName, "san_email": x509.RFC822Name, "san_uri": x509.UniformResourceIdentifier}


class Certificates:
    """Users by certificate; `rule` says which name of a certificate is the user's, and the first of several counts."""

    def __init__(self, rule: Rule, find: Callable[[str], User | None]) -> None:
        self._rule = rule
        self._find = find

    def find(self, certificate: bytes) -> User:
        """Return the user of a certificate. Raises NotAuthenticatedError."""
        name = name_in(certificate, self._rule)
        user = self._find(name) if name else None
        if user is None:
            raise NotAuthenticatedError(name, "send credentials, or add a user with the name in the certificate")
        return user


def name_in(certificate: bytes, rule: Rule) -> str:
    """Return the name that the rule picks from a certificate (DER); empty when it has none."""
    if rule == "none":
        return ""
    try:
        shown = x509.load_der_x509_certificate(certificate)
        if rule == "cn":
            named = shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            return str(named[0].value) if named else ""
        others = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return ""
    found = (one.value for one in others if isinstance(one, _KINDS[rule]))
    return str(next(found, ""))
