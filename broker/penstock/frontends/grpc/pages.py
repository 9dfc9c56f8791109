"""Pages of lists: sizes and tokens of requests, to the place that a verb's page begins after, and back."""

import json
from collections.abc import Sequence

from penstock.kit.settings import PAGE_SIZE_MAX
from penstock.model.errors import InvalidArgumentError, Thing

NUMBER_LENGTH_MAX = 20  # of 64 bits
TOKEN_LENGTH_MAX = 8_192
"""In characters. Three names of 255 bytes each fit, with each byte escaped; reading a longer one costs time."""
_TOKEN_MARK = "after:"  # the default exchange's name is empty, and an empty token means the first page


def page_size(wanted: int) -> int:
    return min(wanted or PAGE_SIZE_MAX, PAGE_SIZE_MAX)


def next_name(names: Sequence[str], limit: int) -> str:
    """Return the next page's token. A full page may have another one behind it, which may turn out to be empty."""
    return token_after(names[-1]) if len(names) == limit else ""


def token_after(name: str) -> str:
    return _TOKEN_MARK + name


def name_after(token: str) -> str | None:
    if not token:
        return None
    if len(token) > TOKEN_LENGTH_MAX or not token.startswith(_TOKEN_MARK):
        raise _foreign(token)
    return token.removeprefix(_TOKEN_MARK)


def number_after(token: str) -> int:
    """Return the number that a page begins after: 0 for the first one."""
    name = name_after(token)
    return 0 if name is None else number_of(name, token)


def number_of(text: str, token: str) -> int:
    """Read a number in a token."""
    if not (text.isascii() and text.isdecimal() and len(text) <= NUMBER_LENGTH_MAX):
        raise _foreign(token)
    return int(text)


def next_parts(place: Sequence[str] | None) -> str:
    """Return the token of the page after a place that takes several names to tell; None is the end."""
    return "" if place is None else _TOKEN_MARK + json.dumps(list(place))


def parts_after(token: str, count: int) -> list[str] | None:
    text = name_after(token)
    if text is None:
        return None
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        raise _foreign(token) from None
    if not isinstance(parts, list) or len(parts) != count or not all(isinstance(part, str) for part in parts):
        raise _foreign(token)
    return parts


def _foreign(token: str) -> InvalidArgumentError:
    thing = Thing("page token", token[:64])
    return InvalidArgumentError(thing, "was not issued by this broker", "start with an empty one", field="page_token")
