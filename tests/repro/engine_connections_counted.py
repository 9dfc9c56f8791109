"""connections_max = 3: a dozen connections send one call each and close while the password is checked.

No client is connected then, so the user must get in.
"""

import time

from rig import GUEST, Broker, RawCall, admin, administration, credentials, grpc, messaging, penstock, run, wire

COUNT = 12
PATH = "/penstock.v1.MessagingService/Get"


def check():
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri) as connection, broker.channel() as channel:
            connection.declare_queue("letters")
            connection.admin.put_user("walter", "first password")
            connection.admin.set_permission("walter", configure=".*", write=".*", read=".*")
            limits = admin.UserLimits(connections_max=3)
            administration(channel).SetUserLimits(
                admin.SetUserLimitsRequest(name="walter", limits=limits), metadata=GUEST
            )
            walter = credentials("walter", "first password")
            request = wire.GetRequest(queue="letters")
            calls = [RawCall(broker.port, PATH, request, metadata=walter, ends=True) for _ in range(COUNT)]
            for call in calls:
                call.close()
                time.sleep(0.002)
            time.sleep(2)
            counted = (
                administration(channel)
                .GetUserLimits(admin.GetUserLimitsRequest(name="walter"), metadata=GUEST)
                .connection_count
            )
            with broker.channel() as fourth:
                try:
                    messaging(fourth).Get(request, metadata=walter, timeout=10)
                    answer = "is let in"
                except grpc.RpcError as error:
                    answer = f"is refused: {error.code().name}, {error.details()}"
    return counted > 0 or "refused" in answer, (
        f"connections_max 3: {counted} connections counted 2 s after the last was closed; walter {answer}"
    )


run(check)
