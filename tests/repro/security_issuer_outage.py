"""The issuer stops answering when the keys are stale. Two hundred tokens of made-up keys come, then one of a key that
is known, which must not wait for it. And while an issuer answers with an error, it must not be asked for each token."""

import threading
import time

from issuer import EVERYTHING, Issuer, bearer, status_code
from rig import Broker, run

TOKENS, CACHE_SECONDS = 200, 10
FETCHES_MAX = TOKENS // 4


def check():
    issuer = Issuer()
    with Broker(env=issuer.settings(jwt_jwks_cache_seconds=CACHE_SECONDS)) as broker:
        broker.start()

        def code(token, seconds=60, channel=None):
            return status_code(broker, bearer(token), seconds, channel)

        def made_up(name):
            return [issuer.token(600, EVERYTHING, kid=f"{name}{number}") for number in range(TOKENS)]

        known = [issuer.token(600, EVERYTHING, jti=str(number)) for number in range(2)]
        first = code(known[0])
        if first != "OK":
            raise RuntimeError(f"a token is refused: {first}")
        time.sleep(CACHE_SECONDS + 1)

        issuer.status, before = 500, len(issuer.fetched_at)
        with broker.channel() as flood:
            for token in made_up("fast"):
                code(token, channel=flood)
        fetches = len(issuer.fetched_at) - before

        issuer.hang.set()
        flood = broker.channel()
        for token in made_up("slow"):
            threading.Thread(target=code, args=(token, 150, flood), daemon=True).start()
        time.sleep(1)
        used = code(known[0])
        beside = code(known[1], 100)
    return beside != "OK" or fetches > FETCHES_MAX, (
        f"stale keys, a hanging issuer and {TOKENS} tokens of made-up keys: a new token of a known key {beside}, "
        f"one that was used before {used}; an issuer with errors is asked {fetches} times by {TOKENS} tokens"
    )


run(check)
