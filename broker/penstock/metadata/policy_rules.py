"""Sets and clears policies and finds their effect.

Among the policies that match a name the one with the highest priority applies; an operator's applies beside it, and the
stricter value holds. A declared argument takes precedence over a policy. Of two numbers for a classic queue the smaller
one holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from penstock.metadata.argument_rules import target_of
from penstock.metadata.argument_table import BY_POLICY_KEY, Argument, Target, is_fewer, is_smaller
from penstock.metadata.commands import DeletePolicy, SetPolicy
from penstock.metadata.effects import Change, Decision, Done, PersistPolicies, PutExchange, PutQueue
from penstock.metadata.policies import ApplyTo, Policies, Policy, check_policy
from penstock.metadata.topology import VhostTopology
from penstock.model.arguments import Arguments, Value, freeze_arguments
from penstock.model.errors import InvalidArgumentError, NotFoundError, Thing, TooLargeError
from penstock.model.names import DEFAULT_EXCHANGE
from penstock.model.records import ALTERNATE_KEYS, STAGE_PREFIX, Durability, Exchange, Queue

POLICIES_MAX: Final = 1_000
PATTERNS_BYTES_MAX: Final = 32 * 1024 * 1024
"""The memory of all compiled patterns of a virtual host's policies, and of its operators' policies. It also bounds the
time that matching one name with all of them takes."""
DURABILITY: Final = "durability"
_MEANT_BY: Final[Mapping[Target, frozenset[ApplyTo]]] = {
    Target.EXCHANGE: frozenset({ApplyTo.ALL, ApplyTo.EXCHANGES}),
    Target.CLASSIC: frozenset({ApplyTo.ALL, ApplyTo.QUEUES, ApplyTo.CLASSIC_QUEUES}),
    Target.QUORUM: frozenset({ApplyTo.ALL, ApplyTo.QUEUES, ApplyTo.QUORUM_QUEUES}),
    Target.STREAM: frozenset({ApplyTo.ALL, ApplyTo.QUEUES, ApplyTo.STREAMS}),
}


def set_policy(state: VhostTopology, command: SetPolicy) -> Decision:
    check_policy(state.vhost, command.policy, is_operator=command.is_operator)
    held = state.operator_policies if command.is_operator else state.policies
    if held.get(command.policy.name) == command.policy:
        return Decision(Done(0))
    if command.policy.name not in held and len(held) >= POLICIES_MAX:
        raise InvalidArgumentError(
            state.thing("policy", command.policy.name),
            f"would be one more than {POLICIES_MAX}",
            "clear one that is not needed",
        )
    left = [policy for name, policy in held.items() if name != command.policy.name]
    size = sum(policy.compiled.size for policy in (*left, command.policy))
    if size > PATTERNS_BYTES_MAX:
        raise TooLargeError(
            Thing("pattern", command.policy.pattern),
            f"takes {command.policy.compiled.size} bytes, and all policies of the virtual host {size}",
            size=size,
            size_max=PATTERNS_BYTES_MAX,
        )
    return change_policies(state, {**held, command.policy.name: command.policy}, is_operator=command.is_operator)


def delete_policy(state: VhostTopology, command: DeletePolicy) -> Decision:
    held = state.operator_policies if command.is_operator else state.policies
    if command.name not in held:
        raise NotFoundError(state.thing("policy", command.name), "list the existing policies")
    left = {name: policy for name, policy in held.items() if name != command.name}
    return change_policies(state, left, is_operator=command.is_operator)


def change_policies(state: VhostTopology, policies: Policies, *, is_operator: bool) -> Decision:
    """Replace all policies, or those of the operators.

    The engine changes where the effect of the policies differs, which is only where a changed policy matches.
    """
    held = state.operator_policies if is_operator else state.policies
    names = [name for name in held.keys() | policies.keys() if held.get(name) != policies.get(name)]
    patterns = {each[name].compiled for each in (held, policies) for name in names if name in each}
    concerned = [each for each in _all_things(state) if any(pattern.matches(each.name) for pattern in patterns)]
    before = [_effective(state, each) for each in concerned]
    state.put_policies(policies, is_operator=is_operator)
    changes: list[Change] = []
    for was, now in zip(before, (_effective(state, each) for each in concerned), strict=True):
        if _for_engine(was) != _for_engine(now):
            changes.append(PutExchange(now) if isinstance(now, Exchange) else PutQueue(now))
    return Decision(Done(), [PersistPolicies(tuple(policies.values()), is_operator=is_operator)], changes)


def _for_engine(thing: Exchange | Queue) -> tuple[object, Durability | None]:
    """Return the parts that a policy can change."""
    return freeze_arguments(thing.arguments), thing.least_durability if isinstance(thing, Queue) else None


def _all_things(state: VhostTopology) -> list[Exchange | Queue]:
    exchanges = [each for each in state.exchanges.values() if each.name != DEFAULT_EXCHANGE]
    return [*exchanges, *state.queues.values()]


def _effective(state: VhostTopology, thing: Exchange | Queue) -> Exchange | Queue:
    return effective_exchange(state, thing) if isinstance(thing, Exchange) else effective_queue(state, thing)


def effective_exchange(state: VhostTopology, exchange: Exchange) -> Exchange:
    """Return the exchange for the engine, with the arguments that policies add."""
    if not state.has_policies or exchange.name == DEFAULT_EXCHANGE:
        return exchange
    added = _added(state, exchange.name, exchange.arguments, Target.EXCHANGE)
    return replace(exchange, arguments=added) if added is not exchange.arguments else exchange


def effective_queue(state: VhostTopology, queue: Queue) -> Queue:
    if not state.has_policies or queue.name.startswith(STAGE_PREFIX):
        return queue  # what a stage promises and keeps is the broker's to say
    target = target_of(queue.kind)
    added = _added(state, queue.name, queue.arguments, target)
    least = _least_durability(state, queue.name, target)
    return replace(queue, arguments=added, least_durability=least) if added is not queue.arguments else queue


def policies_of(state: VhostTopology, queue: Queue) -> tuple[str, str]:
    """Return the names of the policy and of the operators' policy that apply to a queue; empty for none."""
    if queue.name.startswith(STAGE_PREFIX):
        return "", ""
    target = target_of(queue.kind)
    found = (matching(each.values(), queue.name, target) for each in (state.policies, state.operator_policies))
    policy, operator = ("" if each is None else each.name for each in found)
    return policy, operator


def _least_durability(state: VhostTopology, name: str, target: Target) -> Durability | None:
    """None for `os`, which every message has."""
    operator = matching(state.operator_policies.values(), name, target)
    return Durability.DISK if operator is not None and operator.definition.get(DURABILITY) == Durability.DISK else None


def matching(policies: Iterable[Policy], name: str, target: Target) -> Policy | None:
    """Return the matching policy with the highest priority, the first by name if there are several."""
    found = [policy for policy in policies if policy.apply_to in _MEANT_BY[target] and policy.compiled.matches(name)]
    return min(found, key=lambda policy: (-policy.priority, policy.name), default=None)


def _added(state: VhostTopology, name: str, arguments: Arguments, target: Target) -> Arguments:
    policy = matching(state.policies.values(), name, target)
    operator = matching(state.operator_policies.values(), name, target)
    if policy is None and operator is None:
        return arguments
    merged = dict(arguments)
    for key, known in BY_POLICY_KEY.items():
        if target not in known.applies_to:
            continue
        if policy is not None and key in policy.definition:
            wanted = policy.definition[key]
            if not _is_declared(arguments, known.name) or _is_lower(known, target, wanted, arguments.get(known.name)):
                merged[known.name] = wanted
        if operator is not None and key in operator.definition and known.stricter is not None:
            limit = operator.definition[key]
            if known.name not in merged or known.stricter(limit, merged[known.name]):
                merged[known.name] = limit
    return merged


def _is_lower(known: Argument, target: Target, wanted: Value, declared: Value) -> bool:
    """Return whether a policy lowers a number that a queue declares, as in the other brokers; not for streams.

    A negative delivery limit, which is none, is above every number.
    """
    is_number = known.stricter in (is_smaller, is_fewer)
    return target is not Target.STREAM and is_number and known.stricter is not None and known.stricter(wanted, declared)


def _is_declared(arguments: Arguments, argument: str) -> bool:
    names = ALTERNATE_KEYS if argument in ALTERNATE_KEYS else (argument,)
    return any(name in arguments for name in names)
