"""Digests of passwords that were imported.

How long a wrong password takes for an unknown user, one of argon2id and one of bcrypt; and whether digests that cost
seconds are taken.
"""

import json
import statistics
import time

from rig import Broker, admin, run
from stubs import GUEST, Stubs, basic

ROUNDS = 25
BCRYPT_10 = "$2b$10$abcdefghijklmnopqrstuu" + "5s2v8.iXieOjg/.AySBTTZIIVFJeBui"
BCRYPT_16 = BCRYPT_10.replace("$10$", "$16$")
ARGON2_BOMB = "$argon2id$v=19$m=1048576,t=16,p=1$AAAAAAAAAAAAAAAAAAAAAA$CCv1k+OgTOY2o6b9oYXWUQjthgkklr8CN2O7KhjhHyo"


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.put_user("argon")

        def imported(name, digest, algorithm):
            user = {"name": name, "password_hash": digest, "hashing_algorithm": algorithm, "tags": []}
            request = admin.ImportDefinitionsRequest(json=json.dumps({"users": [user]}).encode())
            return root.code("ImportDefinitions", request)

        taken = {
            "bcrypt": imported("bcrypt", BCRYPT_10, "bcrypt"),
            "bcrypt of cost 16": imported("dear", BCRYPT_16, "bcrypt"),
            "argon2id with 1 GiB and 16 passes": imported("bomb", ARGON2_BOMB, "argon2id"),
        }
        guessing = broker.channel()

        def seconds(name, number, patience=20):
            began = time.monotonic()
            Stubs(guessing, basic(name, f"wrong{number}")).code("GetStatus", admin.GetStatusRequest(), patience)
            return time.monotonic() - began

        took: dict[str, list[float]] = {"unknown": [], "argon": [], "bcrypt": []}
        for number in range(ROUNDS):
            for name, found in took.items():
                found.append(seconds(name, number))
        medians = {name: statistics.median(found) * 1_000 for name, found in took.items()}
        dear = {name: seconds(name, 0, 25) for name in ("dear", "bomb")}
    if taken["bcrypt"] != "OK":
        raise RuntimeError(f"an ordinary digest is not imported: {taken['bcrypt']}")
    told = ", ".join(f"{name} {median:.0f} ms" for name, median in medians.items())
    costly = [name for name, code in taken.items() if code == "OK" and name != "bcrypt"]
    is_oracle = max(medians.values()) > 1.5 * min(medians.values())
    return is_oracle or bool(costly), (
        f"medians of {ROUNDS} wrong passwords: {told}; one of bcrypt 16: {dear['dear']:.1f} s, of argon2id 1 GiB: "
        f"{dear['bomb']:.1f} s; imported: {', '.join(costly) or 'none'}"
    )


run(check)
