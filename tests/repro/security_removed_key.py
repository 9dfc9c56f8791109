"""The issuer drops a signing key. Once the broker has fetched the keys anew, a token of the old one must not count."""

import time

from issuer import EVERYTHING, Issuer, bearer, status_code
from rig import Broker, run

CACHE_SECONDS = 10


def check():
    issuer = Issuer()
    with Broker(env=issuer.settings(jwt_jwks_cache_seconds=CACHE_SECONDS)) as broker:
        broker.start()

        def code(token):
            return status_code(broker, bearer(token))

        used, unused = (issuer.token(3_600, EVERYTHING, jti=name) for name in ("used", "unused"))
        before, ten_years = code(used), code(issuer.token(10 * 365 * 86_400, EVERYTHING))
        issuer.add("second")
        del issuer.keys["first"]
        time.sleep(CACHE_SECONDS + 2)
        newer = code(issuer.token(600, EVERYTHING, "second"))
        count = len(issuer.fetched_at)
        never_used = code(unused)
        time.sleep(2)
        after = code(used)
    if (before, newer) != ("OK", "OK"):
        raise RuntimeError(f"tokens of keys that are published: {before}, {newer}")
    return after == "OK", (
        f"a token that was used is {after} on a new connection {CACHE_SECONDS + 4} s after its key was dropped, with "
        f"the new key in use and {count} pages fetched; one of the same key that was not used: {never_used}; one "
        f"that ends in ten years was {ten_years}"
    )


run(check)
