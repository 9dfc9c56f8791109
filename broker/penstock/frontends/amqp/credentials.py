"""From the log-in of a connection to credentials."""

from penstock.services import Credentials, NoCredentials, Password

_WAY_OUT = "log in with the mechanism PLAIN or AMQPLAIN"


def credentials_of(authorization: str) -> Credentials:
    """Return the user and the password, which a zero divides. No user's name has one."""
    name, zero, password = authorization.partition("\0")
    return Password(name, password) if zero and name else NoCredentials(_WAY_OUT)


def user_of(authorization: str) -> str:
    """Return the name by which a client has logged in."""
    return authorization.partition("\0")[0]
