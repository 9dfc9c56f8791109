"""Every kind applied, changed and deleted; wrong manifests refused by the API server; drift repaired."""

from pathlib import Path

import pytest
import yaml

from e2e.kubectl import Kubectl, until
from e2e.manifests import ours, queue

BAD = sorted((Path(__file__).resolve().parents[1] / "tests" / "operator" / "bad").glob("*.yaml"))


FILL = """
import sys, penstock
with penstock.connect(sys.argv[1], timeout=60) as broker:
    print(broker.publish_many([b"x" * 100] * 100_000, routing_key="readings"))
    readings = broker.stream("readings")
    print(*(message.offset for place in ("first", "last") for message in readings.read(from_=place, count=1)))
"""
FIRST = """
import sys, penstock
with penstock.connect(sys.argv[1], timeout=60) as broker:
    print(broker.stream("readings").offsets()[0].first)
"""

LIMITED = {"x-delivery-limit": 5, "x-dead-letter-exchange": "tour", "x-message-ttl": 60_000, "x-max-priority": 3}
DELAYED = {"x-delayed-type": "direct"}


def test_every_kind_is_applied_changed_and_deleted(kubectl: Kubectl) -> None:
    objects = [
        ours("VHost", "tour", {"name": "tour", "limits": {"maxQueues": 5}, "deletionPolicy": "Delete"}),
        ours("Exchange", "tour", {"vhost": "tour", "name": "tour", "type": "fanout"}),
        queue("tour", vhost="tour", deletionPolicy="Delete", arguments={"team": "shop", "x-dedicated": True}),
        ours("Binding", "tour", {"vhost": "tour", "source": "tour", "destination": "tour"}),
        ours(
            "Policy", "tour", {"vhost": "tour", "name": "tour", "pattern": "tour", "definition": {"durability": "disk"}}
        ),
        ours("User", "tour", {"name": "tour", "tags": ["monitoring"], "limits": {"maxStreams": 5}}),
        ours("Permission", "tour", {"userRef": {"name": "tour"}, "vhost": "tour", "read": "tour"}),
        ours("Stream", "tour", {"vhost": "tour", "name": "tours", "partitions": 2, "maxAge": "7D"}),
        ours("Exchange", "keys", {"vhost": "tour", "name": "keys", "type": "topic"}),
        ours(
            "TopicPermission", "tour", {"userRef": {"name": "tour"}, "vhost": "tour", "exchange": "keys", "write": "a"}
        ),
        queue("jobs", vhost="tour", type="quorum", deletionPolicy="Delete", arguments=LIMITED),
        ours(
            "Exchange", "later", {"vhost": "tour", "name": "later", "type": "x-delayed-message", "arguments": DELAYED}
        ),
    ]
    kubectl.apply(*objects)
    for each in objects:
        kubectl.wait_ready(f"{each['kind'].lower()}.penstock.dev/{each['metadata']['name']}", seconds=30)

    objects[4]["spec"]["priority"] = 5
    objects[5]["spec"] |= {"tags": ["administrator"], "limits": {"publishRate": 7000}}
    objects[6]["spec"]["write"] = "tour"
    kubectl.apply(*objects)
    until(lambda: "administrator" in broker(kubectl, "user", "list", "--output", "json"), "the user's tag")
    until(
        lambda: '"publish_rate": 7000' in broker(kubectl, "user", "limits", "tour", "--output", "json"),
        "the user's limit",
    )
    until(lambda: '"write": "tour"' in broker(kubectl, "permission", "list", "--output", "json"), "the permission")

    for each in reversed(objects):
        kubectl("delete", f"{each['kind'].lower()}.penstock.dev", each["metadata"]["name"], "--timeout=30s")
    assert "tour" not in broker(kubectl, "vhost", "list", "--output", "json")
    assert "tour" not in broker(kubectl, "user", "list", "--output", "json")
    until(lambda: kubectl.get("secret", "tour-user-credentials") is None, "the Secret is gone")


def test_a_stream_is_published_to_and_read_and_keeps_what_a_policy_says(kubectl: Kubectl) -> None:
    stream = queue("readings", type="stream", deletionPolicy="Delete")
    kubectl.apply(stream)
    kubectl.wait_ready("queues.penstock.dev/readings", seconds=60)
    uri = f"penstock://admin:{kubectl.password()}@127.0.0.1:5680/"
    in_broker = ["exec", "mq-0", "--", "python3", "-c"]

    assert kubectl(*in_broker, FILL, uri).split() == ["100000", "1", "100000"]
    bound = {
        "name": "short",
        "pattern": "^readings$",
        "applyTo": "streams",
        "definition": {"max-length-bytes": 2_000_000},
    }
    kubectl.apply(ours("Policy", "short", bound))
    kubectl.wait_ready("policies.penstock.dev/short", seconds=60)
    until(lambda: int(kubectl(*in_broker, FIRST, uri)) > 1, "the oldest are gone", 120)

    kubectl("delete", "policies.penstock.dev/short", "queues.penstock.dev/readings", "--timeout=60s")
    assert "readings" not in broker(kubectl, "queue", "list", "--output", "json")


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_wrong_manifest_is_refused_with_what_to_write(kubectl: Kubectl, path: Path) -> None:
    """Apply wrong manifests.

    The first line of each file is the message; of two documents the first is applied before.
    """
    says = path.read_text().splitlines()[0].removeprefix("# ")
    *before, wrong = [yaml.safe_dump(each) for each in yaml.safe_load_all(path.read_text())]
    for each in before:
        kubectl("apply", "-f", "-", stdin=each)

    done = kubectl.attempt(["kubectl", "apply", "-f", "-"], stdin=wrong)
    for each in before:
        kubectl("delete", "--timeout=60s", "-f", "-", stdin=each)  # the next one may have the same name

    assert done.returncode != 0, "it was taken"
    assert says in done.stderr


def test_what_differs_on_the_broker_is_put_right(kubectl: Kubectl) -> None:
    kubectl.apply(queue("drift"))
    kubectl.wait_ready("queues.penstock.dev/drift")

    broker(kubectl, "queue", "delete", "drift")
    # The next reconcile comes with the resync; a change of the object triggers it now.
    kubectl("annotate", "queues.penstock.dev", "drift", "look=again", "--overwrite")

    until(lambda: '"drift"' in broker(kubectl, "queue", "list", "--output", "json"), "the queue is there again")
    until(lambda: "DriftRepaired" in kubectl("events", "--for", "queue.penstock.dev/drift"), "an event tells of it")


def test_what_differs_in_kubernetes_is_put_right(kubectl: Kubectl) -> None:
    kubectl("patch", "service", "mq", "--type=merge", "--patch", '{"spec":{"selector":{"app.kubernetes.io/name":"x"}}}')

    def is_right() -> bool:
        return kubectl("get", "service", "mq", "--output", "jsonpath={.spec.selector}").find('"penstock"') > 0

    until(is_right, "the Service selects the broker again")


def test_what_cannot_be_met_shows_why(kubectl: Kubectl) -> None:
    wrong = {"name": "p", "pattern": ".*", "definition": {"no-such-key": 1}}
    kubectl.apply(queue("lost", vhost="nowhere"), ours("Policy", "p", wrong))

    until(lambda: kubectl.condition("queues.penstock.dev", "lost")[1] == "NotFound", "no such vhost")
    until(lambda: kubectl.condition("policies.penstock.dev", "p")[1] == "InvalidArgument", "no such key")
    kubectl("delete", "queues.penstock.dev/lost", "policies.penstock.dev/p")


def broker(kubectl: Kubectl, *arguments: str) -> str:
    """Run `penstock` in the broker's pod, as its administrator."""
    uri = f"penstock://admin:{kubectl.password()}@127.0.0.1:5680/"
    return kubectl("exec", "mq-0", "--", "python3", "/packages/bin/penstock", *arguments, "--uri", uri)
