"""Puts the back-ends together that the settings name, in their order."""

from typing import TYPE_CHECKING, Protocol

from penstock.identity import TokenRules, User
from penstock.identity.http_backend import HttpBackend, HttpUrls
from penstock.identity.http_client import HttpClient
from penstock.identity.sign_in import Backend, SignIn
from penstock.identity.token_backend import TokenBackend
from penstock.identity.token_keys import TokenKeys
from penstock.kit.clock import Clock
from penstock.node.config import Settings, words

if TYPE_CHECKING:
    from penstock.identity.certificates import Certificates, Rule


class LocalUsers(Backend, Protocol):
    """The users that this broker or its cluster stores."""

    def find(self, name: str, /) -> User | None: ...


def make_sign_in(settings: Settings, accounts: LocalUsers, http_client: HttpClient, clock: Clock) -> SignIn:
    made: dict[str, Backend] = {"local": accounts}
    tokens = _token_backend(settings, http_client, clock) if "jwt" in settings.backends else None
    if tokens is not None:
        made["jwt"] = tokens
    if "http" in settings.backends:
        urls = HttpUrls(
            settings.http_auth_user_url,
            settings.http_auth_vhost_url,
            settings.http_auth_resource_url,
            settings.http_auth_topic_url,
        )
        made["http"] = HttpBackend(urls, settings.http_auth_cache_seconds, http_client.post_form, clock)
    backends = [made[name] for name in settings.backends]
    return SignIn(backends, _certificates(settings.tls_client_user, accounts), tokens)


def _certificates(rule: "Rule", accounts: LocalUsers) -> "Certificates | None":
    if rule == "none":
        return None
    # What reads certificates weighs ten megabytes: a broker that needs it loads it at its start, no other does.
    from penstock.identity.certificates import Certificates

    return Certificates(rule, accounts.find)


def _token_backend(settings: Settings, http_client: HttpClient, clock: Clock) -> TokenBackend:
    audience, prefix = settings.jwt_audience, settings.jwt_scope_prefix
    rules = TokenRules(
        audience,
        f"{audience}." if prefix == "auto" else prefix,
        words(settings.jwt_username_claims),
        words(settings.jwt_scope_claims),
    )
    keys = TokenKeys(
        settings.jwt_issuer, settings.jwt_jwks_url, settings.jwt_jwks_cache_seconds, http_client.fetch_json, clock
    )
    return TokenBackend(keys, rules, settings.jwt_issuer, settings.jwt_clock_skew_seconds, clock)
