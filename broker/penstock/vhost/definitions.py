"""Export and import of definitions.

An import only adds. It leaves equal objects alone, and is refused before any change if an object differs or has a
property that this version does not support. An import that conflicts with a concurrent change stops there; when it is
repeated, it continues. Reading, trying and writing a document of thousands of objects run on a thread and delay no
other call.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.metadata import VhostTopology, decide
from penstock.metadata.commands import Bind, Command
from penstock.metadata.effects import Done, Entry, ExchangeDeclared, QueueDeclared, StreamDeclared
from penstock.model.errors import InvalidArgumentError, PreconditionFailedError, RefusedError
from penstock.model.names import VhostName
from penstock.model.records import QueueKind
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.batches import Outcome
from penstock.vhost.definitions_json import (
    DEFINITIONS,
    EXPORT,
    NO_CONNECTION,
    Definitions,
    read_definitions,
    write_topology,
)
from penstock.vhost.owner import COMMANDS_WAITING_MAX
from penstock.vhost.policies_json import write_policies
from penstock.vhost.ports import DefinitionsUsers
from penstock.vhost.rights import Rights
from penstock.vhost.super_streams import take_super_streams
from penstock.vhost.vhost import Vhost

PROBLEMS_SHOWN_MAX: Final = 20
PROBLEM_LENGTH_MAX: Final = 500
SUBMITTED_MAX: Final = COMMANDS_WAITING_MAX // 2
"""Commands of an import that wait at once: they share syncs, and leave room for everybody else."""


async def export_definitions(vhosts: AllVhosts, users: DefinitionsUsers, rights: Rights, version: str) -> bytes:
    """Everything durable, with users and permissions."""
    rights.require_administrator(EXPORT)
    document: dict[str, Any] = {
        "product_name": "Penstock",
        "penstock_version": version,
        "users": users.export_users(),
        "vhosts": [_write_vhost(vhost) for vhost in vhosts.all()],
        "permissions": users.export_permissions(),
        "topic_permissions": users.export_topics(),
        "parameters": [],
        "global_parameters": [],
        "policies": [],
        "exchanges": [],
        "queues": [],
        "bindings": [],
    }
    entries = [(vhost.name, await vhost.entries()) for vhost in vhosts.all()]
    return await asyncio.to_thread(_encode_all, document, entries)


def _write_vhost(vhost: Vhost) -> dict[str, Any]:
    """Return a vhost as RabbitMQ reads it too, unless it has shards."""
    shards = {"shards": vhost.shard_count} if vhost.shard_count > 1 else {}
    return {"name": vhost.name, **shards, **_write_default_queue_type(vhost)}


def _write_default_queue_type(vhost: Vhost) -> dict[str, Any]:
    """Return the default type, unless it is classic, in both places where RabbitMQ has it."""
    if vhost.default_queue_type is QueueKind.CLASSIC:
        return {}
    default = {"default_queue_type": vhost.default_queue_type.value}
    return {**default, "metadata": default}


async def export_vhost(vhost: Vhost, rights: Rights, version: str) -> bytes:
    """One vhost's topology, without its name and without users: it can be imported into any other."""
    rights.require_administrator(EXPORT)
    entries = await vhost.entries()
    document: dict[str, Any] = {
        "product_name": "Penstock",
        "penstock_version": version,
        "original_vhost_name": vhost.name,
        **_write_default_queue_type(vhost),
    }
    return await asyncio.to_thread(_encode_vhost, document, entries)


async def check_import(
    vhosts: AllVhosts,
    users: DefinitionsUsers,
    rights: Rights,
    text: bytes,
    into: VhostName | None = None,
    skipped: list[str] | None = None,
) -> Definitions:
    """Return what an import adds. `into` takes the export of one vhost, which must not name users.

    An unsupported item refuses the import, or is left out and added to the list `skipped` if there is one.
    """
    rights.require_administrator(DEFINITIONS)
    wanted = await asyncio.to_thread(_read, text, into, skips=skipped is not None)
    if skipped is not None:
        skipped += wanted.problems
        wanted.problems = []
    if into is not None:
        vhosts.get(into)
        if wanted.users or wanted.permissions or wanted.topics or wanted.vhosts:
            wanted.problems.append("users, permissions and vhosts cannot be imported into one vhost")
    _note_unknown_vhosts(vhosts, wanted)
    wanted.problems += await asyncio.to_thread(users.check, wanted.users, wanted.permissions, wanted.topics)
    mismatches = await _try_topology(vhosts, wanted, skipped)
    if wanted.problems:
        rule = f"has unsupported items: {_shown(wanted.problems)}"
        raise InvalidArgumentError(DEFINITIONS, rule, "correct or remove these items")
    if mismatches:
        raise PreconditionFailedError(
            DEFINITIONS,
            f"differs from the broker: {_shown(mismatches)}",
            "delete the differing object on the broker or in the file",
        )
    return wanted


def _read(text: bytes, into: VhostName | None, *, skips: bool) -> Definitions:
    wanted = read_definitions(text, into, skips=skips)
    take_super_streams(wanted)
    return wanted


def _note_unknown_vhosts(vhosts: AllVhosts, wanted: Definitions) -> None:
    known = {*vhosts.names(), *wanted.vhosts}
    places: list[str] = [place for place, _ in (*wanted.exchanges, *wanted.queues, *wanted.bindings, *wanted.policies)]
    held = (entry.get("vhost") for entry in (*wanted.permissions, *wanted.topics))
    places += (place for place in held if isinstance(place, str))  # another type is a problem of the entry
    for place in dict.fromkeys(places):
        if place not in known:
            wanted.problems.append(f"vhost '{place}' is used but does not exist, and is not in the file")


async def _try_topology(vhosts: AllVhosts, wanted: Definitions, skipped: list[str] | None) -> list[str]:
    """Decide every command on copies; return the mismatches. Other refusals become problems, or what is skipped."""
    trials: dict[VhostName, VhostTopology] = {}
    commands: list[tuple[VhostName, Command]] = [*wanted.exchanges, *wanted.queues, *_binds(wanted), *wanted.policies]
    for place in dict.fromkeys(place for place, _ in commands):
        trials[place] = await vhosts.get(place).trial() if place in vhosts.names() else VhostTopology(place)
    return await asyncio.to_thread(_try_commands, trials, commands, wanted, skipped)


def _try_commands(
    trials: Mapping[VhostName, VhostTopology],
    commands: Sequence[tuple[VhostName, Command]],
    wanted: Definitions,
    skipped: list[str] | None,
) -> list[str]:
    refused: set[int] = set()
    mismatches: list[str] = []
    for place, command in commands:
        try:
            decide(trials[place], command)
        except PreconditionFailedError as refusal:
            mismatches.append(refusal.failure)
        except RefusedError as refusal:
            (wanted.problems if skipped is None else skipped).append(refusal.item)
            refused.add(id(command.binding if isinstance(command, Bind) else command))
    if skipped is not None:
        _leave_out(wanted, refused)
    return mismatches


def _leave_out(wanted: Definitions, refused: set[int]) -> None:
    wanted.exchanges = [each for each in wanted.exchanges if id(each[1]) not in refused]
    wanted.queues = [each for each in wanted.queues if id(each[1]) not in refused]
    wanted.bindings = [each for each in wanted.bindings if id(each[1]) not in refused]
    wanted.policies = [each for each in wanted.policies if id(each[1]) not in refused]


async def add_all(
    vhosts: AllVhosts, users: DefinitionsUsers, wanted: Definitions, shard_count: int = 1
) -> dict[str, int]:
    """Add what `check_import` returned, in the order of dependence.

    Virtual hosts without a number of shards get `shard_count`. Return how many of each were added; one made twice in
    the text counts once.
    """
    added = {"vhosts": 0}
    for name in wanted.vhosts:
        added["vhosts"] += await vhosts.make(name, wanted.shard_counts.get(name, shard_count))
    added["users"] = await users.import_users(wanted.users)
    added["permissions"] = await users.import_permissions(wanted.permissions)
    added["topic_permissions"] = await users.import_topics(wanted.topics)
    added["exchanges"] = await _submit_all(vhosts, wanted.exchanges)
    added["queues"] = await _submit_all(vhosts, wanted.queues)
    added["bindings"] = await _submit_all(vhosts, _binds(wanted))
    added["policies"] = await _submit_all(vhosts, wanted.policies)
    return added


def _binds(wanted: Definitions) -> list[tuple[VhostName, Bind]]:
    return [(place, Bind(binding, NO_CONNECTION)) for place, binding in wanted.bindings]


async def _submit_all(vhosts: AllVhosts, commands: Sequence[tuple[VhostName, Command]]) -> int:
    """Submit many at a time, so that they share syncs; return how many changed something."""
    changed_count = 0
    for start in range(0, len(commands), SUBMITTED_MAX):
        slice_ = commands[start : start + SUBMITTED_MAX]
        outcomes = await asyncio.gather(*(vhosts.get(place).submit(command) for place, command in slice_))
        changed_count += sum(_has_changed(outcome) for outcome in outcomes)
    return changed_count


def _has_changed(outcome: Outcome) -> bool:
    match outcome.answer:
        case QueueDeclared(is_new=is_new) | ExchangeDeclared(is_new=is_new) | StreamDeclared(is_new=is_new):
            return is_new
        case Done(count):
            return count > 0


def _shown(problems: Iterable[str]) -> str:
    """Cut to what one can read, and to what every protocol can carry as UTF-8."""
    cut = (problem.encode(errors="backslashreplace").decode()[:PROBLEM_LENGTH_MAX] for problem in problems)
    each = list(dict.fromkeys(cut))
    more = [f"and {len(each) - PROBLEMS_SHOWN_MAX} more"] if len(each) > PROBLEMS_SHOWN_MAX else []
    return "; ".join(each[:PROBLEMS_SHOWN_MAX] + more)


def _encode_all(document: dict[str, Any], entries: Iterable[tuple[VhostName, Sequence[Entry]]]) -> bytes:
    for vhost, found in entries:
        for key, items in (write_topology(found, vhost) | write_policies(found, vhost)).items():
            document[key] += items
    return _encode(document)


def _encode_vhost(document: dict[str, Any], entries: Sequence[Entry]) -> bytes:
    return _encode({**document, **write_policies(entries, None), **write_topology(entries, None)})


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
