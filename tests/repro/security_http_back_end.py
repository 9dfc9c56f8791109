"""A server of the operator is asked about streams as `queue` or `exchange`, as documented.

The cookies that it set for one user must not come back with another's questions.
"""

from issuer import Issuer
from rig import Broker, run
from stubs import Stubs, basic

from penstock.v1 import streams_pb2 as streams


def check():
    issuer = Issuer()
    # By name, not by address: cookie jars keep nothing of addresses.
    url = issuer.url.replace("127.0.0.1", "localhost")
    env = {f"PENSTOCK_HTTP_AUTH_{name.upper()}_URL": f"{url}/{name}" for name in ("user", "vhost", "resource")}
    with Broker(env={"PENSTOCK_AUTH_BACKENDS": "local,http", **env}) as broker:
        broker.start()
        anna, otto = (Stubs(broker.channel(), basic(name, "x")) for name in ("anna", "otto"))
        for user in (anna, otto):
            user.DeclareStream(streams.DeclareStreamRequest(name="flow"))
        anna.DeleteStream(streams.DeleteStreamRequest(name="flow"))
    kinds = sorted({asked["resource"] for path, asked, _ in issuer.questions if path == "/resource"})
    others = sum(asked["username"] not in cookie for _, asked, cookie in issuer.questions if cookie)
    return "stream" in kinds or others > 0, (
        f"asked about resources: {', '.join(kinds)}; {others} of {len(issuer.questions)} questions carry another "
        "user's cookie"
    )


run(check)
