"""The issuer stops answering when the keys are stale.

Two hundred tokens of made-up keys come, then one of a key that is known, which must not wait for it. And while an
issuer answers with an error, it must not be asked for each token.
"""

import threading
import time

from issuer import EVERYTHING, Issuer, bearer, status_code
from rig import Broker, run

TOKENS, SECONDS, CACHE_SECONDS = 200, 6.0, 10
FETCHES_MAX = 4


def check():
    issuer = Issuer()
    with Broker(env=issuer.settings(jwt_jwks_cache_seconds=CACHE_SECONDS)) as broker:
        broker.start()

        def code(token, seconds, channel=None):
            return status_code(broker, bearer(token), seconds, channel)

        def made_up(name):
            return [issuer.token(600, EVERYTHING, kid=f"{name}{number}") for number in range(TOKENS)]

        known = [issuer.token(600, EVERYTHING, jti=str(number)) for number in range(2)]
        first = code(known[0], 10)
        if first != "OK":
            raise RuntimeError(f"a token is refused: {first}")
        time.sleep(CACHE_SECONDS + 1)

        issuer.status, before = 500, len(issuer.fetched_at)
        began = time.monotonic()
        with broker.channel() as flood:
            for token in made_up("fast"):
                code(token, 10, flood)
        fetches, took = len(issuer.fetched_at) - before, time.monotonic() - began

        issuer.hang.set()
        flood = broker.channel()
        for token in made_up("slow"):
            threading.Thread(target=code, args=(token, 60, flood), daemon=True).start()
        time.sleep(1)
        began = time.monotonic()
        used = code(known[0], 10)
        used_s = time.monotonic() - began
        began = time.monotonic()
        beside = code(known[1], 30)
        beside_s = time.monotonic() - began
    allowed = FETCHES_MAX + took / 5
    return beside != "OK" or beside_s > SECONDS or fetches > allowed, (
        f"stale keys, a hanging issuer and {TOKENS} tokens of made-up keys: a new token of a known key {beside} after "
        f"{beside_s:.1f} s, one that was used before {used} after {used_s:.1f} s; an issuer with errors is asked "
        f"{fetches} times in {took:.1f} s"
    )


run(check)
