"""Makes a principal from the claims of a verified token. It only knows which claims count, not times and keys."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.identity.identities import Allowance
from penstock.identity.scopes import Scopes
from penstock.identity.users import Tag
from penstock.model.errors import NotAuthenticatedError
from penstock.model.names import user_name


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Names of the claims for the user and the permissions. `audience` is RabbitMQ's `resource_server_id`."""

    audience: str = ""
    scope_prefix: str = ""
    name_claims: tuple[str, ...] = ("sub", "client_id")
    scope_claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenUser:
    """A `Identity` that a token authenticated."""

    name: str
    scopes: Scopes
    expires_at_ms: int | None
    variables: Mapping[str, str] = field(default_factory=dict)
    # The published key that signed the token.
    key: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    tags: tuple[Tag, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", self.scopes.tags)

    @property
    def is_administrator(self) -> bool:
        return Tag.ADMINISTRATOR in self.tags

    def sees_vhost(self, vhost: str) -> bool:
        return self.is_administrator or Tag.MONITORING in self.tags or self.allowance(vhost) is not None

    def allowance(self, vhost: str) -> Allowance | None:
        return self.scopes.in_vhost(vhost, self.variables)


def token_user_of(claims: Mapping[str, Any], rules: TokenRules) -> TokenUser:
    """Return the token's principal. Raises NotAuthenticatedError for a token without a name or an expiry."""
    found = (claims.get(claim) for claim in rules.name_claims)
    name = next((name for name in found if isinstance(name, str) and name), "")
    expires_at = claims.get("exp")
    if not name or isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
        raise NotAuthenticatedError("", f"send a token with `exp` and one of {', '.join(rules.name_claims)}")
    if not name.isprintable():
        raise NotAuthenticatedError("", "send a token with a printable user name")
    user_name(name)
    scopes = Scopes.read(_scopes(claims, rules), rules.scope_prefix)
    known = {"username": name, **{claim: value for claim, value in claims.items() if isinstance(value, str)}}
    variables = {variable: known[variable] for variable in scopes.variables() if variable in known}
    return TokenUser(name, scopes, int(expires_at * 1_000), variables)


def _scopes(claims: Mapping[str, Any], rules: TokenRules) -> list[str]:
    access = claims.get("resource_access")
    server = access.get(rules.audience) if isinstance(access, Mapping) else None
    roles = server.get("roles") if isinstance(server, Mapping) else None
    texts = [*_texts(claims.get("scope")), *_texts(roles)]
    for claim in rules.scope_claims:
        texts += _texts(claims.get(claim))
    return texts


def _texts(value: object) -> Iterable[str]:
    """Return scopes, from one text with spaces between them or from a list."""
    if isinstance(value, str):
        return value.split()
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
