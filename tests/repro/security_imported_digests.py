"""Digests of passwords that take seconds to check must not be imported: each guess at one holds a checker. How long a
wrong password takes, for an unknown user and for digests that are imported, is printed, and no part of the verdict."""

import json
import statistics
import time

from issuer import status_code
from rig import GUEST, Broker, admin, administration, credentials, grpc, run

ROUNDS = 15
BCRYPT_10 = "$2b$10$abcdefghijklmnopqrstuu" + "5s2v8.iXieOjg/.AySBTTZIIVFJeBui"
BCRYPT_16 = BCRYPT_10.replace("$10$", "$16$")
ARGON2_BOMB = "$argon2id$v=19$m=1048576,t=16,p=1$AAAAAAAAAAAAAAAAAAAAAA$CCv1k+OgTOY2o6b9oYXWUQjthgkklr8CN2O7KhjhHyo"


def check():
    with Broker() as broker, broker.channel() as channel:
        broker.start()

        def imported(name, digest, algorithm):
            user = {"name": name, "password_hash": digest, "hashing_algorithm": algorithm, "tags": []}
            request = admin.ImportDefinitionsRequest(json=json.dumps({"users": [user]}).encode())
            try:
                administration(channel).ImportDefinitions(request, metadata=GUEST, timeout=60)
            except grpc.RpcError as refused:
                return refused.code().name
            return "OK"

        ordinary = imported("bcrypt", BCRYPT_10, "bcrypt")
        taken = {
            "bcrypt of cost 16": imported("dear", BCRYPT_16, "bcrypt"),
            "argon2id with 1 GiB and 16 passes": imported("bomb", ARGON2_BOMB, "argon2id"),
        }
        took: dict[str, list[float]] = {"unknown": [], "guest": [], "bcrypt": []}
        for number in range(ROUNDS):
            for name, found in took.items():
                began = time.monotonic()
                status_code(broker, credentials(name, f"wrong{number}"), channel=channel)
                found.append(time.monotonic() - began)
    if ordinary != "OK":
        raise RuntimeError(f"an ordinary digest is not imported: {ordinary}")
    costly = [name for name, code in taken.items() if code == "OK"]
    medians = ", ".join(f"{name} {statistics.median(found) * 1_000:.0f} ms" for name, found in took.items())
    return bool(costly), f"imported: {', '.join(costly) or 'none'}; medians of {ROUNDS} wrong passwords: {medians}"


run(check)
