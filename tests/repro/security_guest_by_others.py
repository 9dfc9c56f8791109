"""The name `guest` is for loopback only, also when a token or a server of the operator vouches for it.

There is no network in this: the broker's own sign-in is asked as for a client on another machine.
"""

import asyncio
import base64
import tempfile
from pathlib import Path

from issuer import EVERYTHING, Issuer
from rig import GUEST, run

FAR = "192.0.2.7:40000"


def check():
    from penstock.frontends.grpc.credentials import credentials_of
    from penstock.identity.http_client import HttpClient
    from penstock.kit.clock import SystemClock
    from penstock.kit.logging import configure
    from penstock.model.errors import FaultError, NotAuthenticatedError
    from penstock.node.backends import make_sign_in
    from penstock.node.config import load_settings
    from penstock.services.accounts import Accounts
    from penstock.services.connections import Connection
    from penstock.services.sessions import authenticate

    configure("error", "json")
    issuer = Issuer()
    urls = {f"http_auth_{name}_url": f"{issuer.url}/{name}" for name in ("user", "vhost", "resource")}
    given = {"jwt_issuer": issuer.url, "jwt_audience": "mq", **urls}
    token = issuer.token(600, EVERYTHING + " mq.tag:administrator", sub="guest")

    def basic(password):
        return "Basic " + base64.b64encode(f"guest:{password}".encode()).decode()

    shown = {
        "its own password": ("local", GUEST[0][1]),
        "a bearer's token": ("local, jwt", f"Bearer {token}"),
        "a token as password": ("local, jwt", basic(token)),
        "the HTTP back end": ("local, http", basic("of the server")),
    }

    async def ask(folder):
        http_client = HttpClient(60)
        accounts = await asyncio.to_thread(Accounts.open, folder / "users.json", "guest", "guest")
        found = {}
        for name, (backends, authorization) in shown.items():
            settings = load_settings(None, {**given, "auth_backends": backends}, {})
            sign_in = make_sign_in(settings, accounts, http_client, SystemClock())
            try:
                identity = await authenticate(sign_in, credentials_of(authorization), Connection(1, FAR))  # type: ignore[arg-type]
                found[name] = f"let in{' as administrator' if identity.is_administrator else ''}"
            except (NotAuthenticatedError, FaultError):
                found[name] = "refused"
        await http_client.close()
        accounts.close()
        return found

    with tempfile.TemporaryDirectory(prefix="repro-") as own:
        found = asyncio.run(ask(Path(own)))
    told = "; ".join(f"by {name} {verdict}" for name, verdict in found.items())
    return any(verdict != "refused" for verdict in found.values()), f"guest from another machine: {told}"


run(check)
