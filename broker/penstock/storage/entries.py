"""Converts between the entries of `metadata` and the changes of `storage`, which do not know each other.

Policies go to files of their own.
"""

from pathlib import Path

from penstock.metadata.effects import (
    Entry,
    PersistBound,
    PersistDefaultQueueType,
    PersistExchange,
    PersistExchangeDeleted,
    PersistLimits,
    PersistPolicies,
    PersistQueue,
    PersistQueueDeleted,
    PersistUnbound,
)
from penstock.metadata.policies import Policy, check_policy, make_policy
from penstock.model.errors import RefusedError, StorageError, Thing
from penstock.model.limits import Holder, read_limits
from penstock.model.records import Exchange, QueueKind
from penstock.storage import Bound, Change, Declared, ExchangeDeleted, QueueDeleted, Unbound
from penstock.storage.limits_json import read_limits_file
from penstock.storage.policies_json import PolicyRecord, read_policies
from penstock.storage.settings_json import read_settings_file


def change_of(entry: Entry) -> Change:
    """Return the change that the file stores for an entry."""
    match entry:
        case PersistExchange(exchange):
            return Declared(exchange)
        case PersistQueue(queue):
            return Declared(queue)
        case PersistExchangeDeleted(name):
            return ExchangeDeleted(name)
        case PersistQueueDeleted(name):
            return QueueDeleted(name)
        case PersistBound(binding):
            return Bound(binding)
        case PersistUnbound(binding):
            return Unbound(binding)
        case PersistPolicies() | PersistLimits() | PersistDefaultQueueType():
            raise AssertionError("policies, limits and the default queue type are not in the definitions file")


def record_of(policy: Policy) -> PolicyRecord:
    definition = dict[str, object](policy.definition)
    return PolicyRecord(policy.name, policy.pattern, policy.apply_to.value, policy.priority, definition)


def policies_of(path: Path, vhost: str, *, is_operator: bool) -> PersistPolicies:
    """Return the policies in a file. Raises StorageError for unsupported ones."""
    policies: list[Policy] = []
    for record in read_policies(path):
        try:
            policies.append(policy_of(vhost, record, is_operator=is_operator))
        except RefusedError as refusal:
            raise StorageError(
                Thing("file", str(path)),
                f"is invalid at policy '{record.name}': {refusal}",
                "correct it, then start again",
            ) from refusal
    return PersistPolicies(tuple(policies), is_operator=is_operator)


def limits_of(path: Path, vhost: str) -> PersistLimits:
    """Return the limits in a file. Raises StorageError."""
    try:
        return PersistLimits(read_limits(Holder.VHOST, vhost, read_limits_file(path)))
    except RefusedError as refusal:
        raise StorageError(
            Thing("file", str(path)), f"is invalid: {refusal}", "correct it, then start again"
        ) from refusal


def default_queue_type_of(path: Path) -> PersistDefaultQueueType:
    """Return the default type of queues in a file. Raises StorageError."""
    found = read_settings_file(path)
    if found is not None and found not in tuple(QueueKind):
        raise StorageError(
            Thing("file", str(path)),
            f"is invalid: it has the default queue type '{found[:64]}'",
            f"write one of {', '.join(QueueKind)}, then start again",
        )
    return PersistDefaultQueueType(QueueKind.CLASSIC if found is None else QueueKind(found))


def policy_of(vhost: str, record: PolicyRecord, *, is_operator: bool) -> Policy:
    """Return the policy of a record. Raises refusals."""
    policy = make_policy(record.name, record.pattern, record.apply_to, record.priority, record.definition)
    check_policy(vhost, policy, is_operator=is_operator)
    return policy


def entry_of(change: Change) -> Entry:
    """Return the entry that the file stored as this change."""
    match change:
        case Declared(thing):
            return PersistExchange(thing) if isinstance(thing, Exchange) else PersistQueue(thing)
        case ExchangeDeleted(name):
            return PersistExchangeDeleted(name)
        case QueueDeleted(name):
            return PersistQueueDeleted(name)
        case Bound(binding):
            return PersistBound(binding)
        case Unbound(binding):
            return PersistUnbound(binding)
