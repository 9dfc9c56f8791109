"""Puts the back-ends together that the settings name, in their order."""

from typing import TYPE_CHECKING

from penstock.auth import TokenRules
from penstock.kit.clock import Clock
from penstock.node.accounts import Accounts
from penstock.node.asking import Asking
from penstock.node.config import Settings, words
from penstock.node.http_backend import HttpBackend, HttpUrls
from penstock.node.sign_in import Backend, SignIn
from penstock.node.token_backend import TokenBackend
from penstock.node.token_keys import TokenKeys

if TYPE_CHECKING:
    from penstock.node.certificates import Certificates, Rule


def make_sign_in(settings: Settings, accounts: Accounts, asking: Asking, clock: Clock) -> SignIn:
    made: dict[str, Backend] = {"local": accounts}
    if "jwt" in settings.backends:
        made["jwt"] = _token_backend(settings, asking, clock)
    if "http" in settings.backends:
        urls = HttpUrls(
            settings.http_auth_user_url,
            settings.http_auth_vhost_url,
            settings.http_auth_resource_url,
            settings.http_auth_topic_url,
        )
        made["http"] = HttpBackend(urls, settings.http_auth_cache_seconds, asking.post_form, clock)
    return SignIn([made[name] for name in settings.backends], _certificates(settings.tls_client_user, accounts))


def _certificates(rule: "Rule", accounts: Accounts) -> "Certificates | None":
    if rule == "none":
        return None
    # What reads certificates weighs ten megabytes: a broker that needs it loads it at its start, no other does.
    from penstock.node.certificates import Certificates

    return Certificates(rule, accounts.find)


def _token_backend(settings: Settings, asking: Asking, clock: Clock) -> TokenBackend:
    audience, prefix = settings.jwt_audience, settings.jwt_scope_prefix
    rules = TokenRules(
        audience,
        f"{audience}." if prefix == "auto" else prefix,
        words(settings.jwt_username_claims),
        words(settings.jwt_scope_claims),
    )
    keys = TokenKeys(
        settings.jwt_issuer, settings.jwt_jwks_url, settings.jwt_jwks_cache_seconds, asking.fetch_json, clock
    )
    return TokenBackend(keys, rules, settings.jwt_issuer, settings.jwt_clock_skew_seconds, clock)
