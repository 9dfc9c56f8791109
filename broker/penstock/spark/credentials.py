"""Credentials given beside a URI, which then holds no secret.

Spark hides the values of options whose names contain `secret`, `password` or `token` wherever it shows options; it does
not hide `uri`. This module merges both into the one URI that all connections use. Its errors name options and never a
value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.client.errors import InvalidUriError
from penstock.client.uri import credentials_in, format_uri, parse_uri
from penstock.spark.errors import OptionError

__all__ = ["DEFAULT_URI", "Credentials", "full_uri"]

DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"
VARIABLE = "PENSTOCK_URI"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Options beside `uri`, empty where not given; `password_file` is the content of the file."""

    user: str = ""
    password: str = ""
    password_file: str = ""
    token: str = ""


def full_uri(uri: str, credentials: Credentials, environment: Mapping[str, str]) -> str:
    """Return the URI with the credentials in it; raise OptionError.

    Without the option `uri` it is that of the environment, whose own credentials are replaced.
    """
    whole = uri or from_environment(environment)
    if credentials == Credentials():
        return whole
    refuse_contradictions(uri, credentials)
    address = parse_uri(whole)
    if credentials.token:
        return format_uri(replace(address, user="", password=credentials.token))
    user = credentials.user or address.user
    if not user:
        raise OptionError("a password needs a user; set the option 'user'")
    return format_uri(replace(address, user=user, password=credentials.password or credentials.password_file))


def from_environment(environment: Mapping[str, str]) -> str:
    uri = environment.get(VARIABLE, DEFAULT_URI)
    try:
        parse_uri(uri)
    except InvalidUriError as error:
        raise OptionError(f"the environment variable {VARIABLE} is invalid: {error}") from None
    return uri


def refuse_contradictions(uri: str, credentials: Credentials) -> None:
    values = {
        "password": credentials.password,
        "passwordFile": credentials.password_file,
        "token": credentials.token,
    }
    secrets = [name for name, value in values.items() if value]
    if len(secrets) > 1:
        raise OptionError(f"give only one of {' and '.join(map(repr, secrets))}")
    if not secrets:
        raise OptionError("'user' needs a password; set 'password' or 'passwordFile'")
    if credentials.token and credentials.user:
        raise OptionError("'token' names its user; leave 'user' out")
    # Without the option, the environment's credentials are replaced.
    user, password = credentials_in(uri) if uri else (None, None)
    if password is not None:
        raise OptionError(f"both 'uri' and '{secrets[0]}' have a password or token; remove the one in 'uri'")
    if user is not None and (credentials.user or credentials.token):
        raise OptionError("both 'uri' and the options name a user; remove the one in 'uri'")
