"""From the log-in of a connection to credentials."""

from penstock.services import Certificate, Credentials, NoCredentials, Password

_WAY_OUT = "log in with the mechanism PLAIN or AMQPLAIN, or with EXTERNAL and a certificate"


def credentials_of(authorization: str, certificate: bytes = b"") -> Credentials:
    """Return the user and the password, which a zero divides, or the certificate of the connection.

    No user's name has a zero. A password may be a token. The mechanism EXTERNAL sends neither a name nor a password.
    """
    if certificate and not authorization:
        return Certificate(certificate)
    name, zero, password = authorization.partition("\0")
    return Password(name, password) if zero and name else NoCredentials(_WAY_OUT)


def user_of(authorization: str) -> str:
    """Return the name by which a client has logged in."""
    return authorization.partition("\0")[0]
