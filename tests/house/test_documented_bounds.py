"""Check that the bounds in documents are those of the code.

A bound is a number in a sentence, and the constant that sets it. The sentence is a regular expression with one group.
The source is a file, or a crate in which the constant has one definition.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Bound(NamedTuple):
    document: str
    sentence: str
    source: str
    constant: str
    unit: int = 1


KIB, MIB = 1 << 10, 1 << 20
SERVE, ENGINE, KIT = "broker/rust/serve/src", "broker/rust/engine/src", "broker/penstock/kit/settings.py"
LOG, FRAMES = "broker/rust/log/src", "broker/penstock/storage/amqp_frames.py"
DIGESTS, CONTRACT = "broker/penstock/identity/digest_bounds.py", "proto/penstock/v1/messaging.proto"
BOUNDS = [
    Bound("docs/clients.md", r"never more than ([\d,]+)\.", SERVE, "PREFETCH_MAX"),
    Bound("docs/clients.md", r"never more than ([\d,]+)\. It returns when", ENGINE, "LEASE_MESSAGES_MAX"),
    Bound("docs/clients.md", r"at most ([\d,]+) runs of consecutive messages", ENGINE, "LEASE_RANGES_MAX"),
    Bound("docs/clients.md", r"at most (\d+) owners", ENGINE, "OWNERS_MAX"),
    Bound("docs/clients.md", r"an owner at most (\d+) leases", ENGINE, "LEASES_MAX"),
    Bound("docs/clients.md", r"first after (\d+) ms", "broker/rust/client/src/back_off.rs", "MS_MIN"),
    Bound("docs/clients.md", r"growing delays of up to (\d+) s", "broker/rust/client/src/back_off.rs", "MS_MAX", 1_000),
    Bound(
        "docs/configuration.md",
        r"at most ([\d,]+) characters",
        "broker/penstock/native/patterns.py",
        "PATTERN_LENGTH_MAX",
    ),
    Bound(
        "docs/configuration.md", r"takes at most (\d+) MiB", "broker/rust/pattern/src/lib.rs", "PROGRAM_BYTES_MAX", MIB
    ),
    Bound(
        "docs/configuration.md",
        r"together at most (\d+) MiB",
        "broker/penstock/metadata/policy_rules.py",
        "PATTERNS_BYTES_MAX",
        MIB,
    ),
    Bound("docs/configuration.md", r"-128 to (\d+)", "broker/penstock/metadata/policies.py", "PRIORITY_MAX"),
    Bound(
        "docs/configuration.md",
        r"partitioned streams \| a number from 1 to ([\d,]+)",
        "broker/penstock/metadata/argument_table.py",
        "PARTITIONS_MAX",
    ),
    Bound("docs/security.md", r"at most (\d+) passwords", KIT, "PASSWORD_CHECKS_OF_CONNECTION_MAX"),
    Bound("docs/security.md", r"one connection and (\d+) of one address", KIT, "PASSWORD_CHECKS_OF_ADDRESS_MAX"),
    Bound("docs/security.md", r"When (\d+) are waiting", KIT, "PASSWORD_CHECKS_WAITING_MAX"),
    Bound("docs/security.md", r"waiting tokens, at most (\d+)", KIT, "KEY_WAITERS_MAX"),
    Bound("docs/security.md", r"At most ([\d,]+) calls wait", KIT, "DECISIONS_WAITING_MAX"),
    Bound("docs/security.md", r"at most (\d+) connections to a server", KIT, "CONNECTIONS_PER_SERVER_MAX"),
    Bound("docs/security.md", r"caches ([\d,]+) keys", SERVE, "KEYS_MAX"),
    Bound("docs/security.md", r"for at most (\d+) streams at a time", SERVE, "RECHECKS_MAX"),
    Bound("docs/security.md", r"for at most (\d+) seconds\. The broker", SERVE, "UNDECIDED_MAX"),
    Bound("docs/security.md", r"requests larger than (\d+) KiB", SERVE, "STRANGE_BYTES_MAX", KIB),
    Bound("docs/security.md", r"or (\d+) requests, and one", f"{SERVE}/grpc/publish.rs", "REQUESTS_MAX"),
    Bound("docs/security.md", r"truncated at ([\d,]+)", "broker/penstock/services/audit.py", "SUBJECT_CHARACTERS_MAX"),
    Bound("docs/security.md", r"argon2id \| (\d+) MiB", DIGESTS, "argon2_memory_kib", KIB),
    Bound("docs/security.md", r"argon2id \| \d+ MiB, (\d+) passes", DIGESTS, "argon2_passes"),
    Bound("docs/security.md", r"argon2id \| \d+ MiB, \d+ passes, (\d+) lanes", DIGESTS, "argon2_lanes"),
    Bound("docs/security.md", r"bcrypt \| cost (\d+)", DIGESTS, "bcrypt_cost"),
    Bound("docs/security.md", r"three quarters of `connections_max`, or (\d+)", SERVE, "EACH_MIN"),
    Bound("docs/format.md", r"without the end octet; at most (\d+) MiB", FRAMES, "FRAME_BYTES_MAX", MIB),
    Bound("docs/format.md", r"more than ([\d,]+), and more than half of all frames", KIT, "DEAD_FRAMES_MAX"),
    Bound("docs/format.md", r"targets, 1 to ([\d,]+)", f"{LOG}/record.rs", "TARGETS_MAX"),
    Bound("docs/format.md", r"A message for more than ([\d,]+) queues", f"{LOG}/record.rs", "TARGETS_MAX"),
    Bound("docs/format.md", r"A settlement with more than ([\d,]+) ranges", f"{LOG}/record.rs", "RANGES_MAX"),
    Bound("docs/format.md", r"for each such start, up to (\d+)", LOG, "MISSED_STARTS_MAX"),
    Bound(
        "docs/kubernetes.md", r"its own metrics on port (\d+)", "operator/penstock_operator/settings.py", "http_port"
    ),
    Bound(CONTRACT, r"0 means 1, and more than ([\d,]+) means", f"{SERVE}/grpc/pull.rs", "COUNT_MAX"),
    Bound(CONTRACT, r"0 means 1,000, and more than ([\d,]+) means", SERVE, "PREFETCH_MAX"),
    Bound(CONTRACT, r"0, and more than ([\d,]+), means", ENGINE, "LEASE_MESSAGES_MAX"),
    Bound(CONTRACT, r"At most ([\d,]+), none of them empty", "broker/rust/wire/src", "RANGES_MAX"),
    Bound("proto/penstock/v1/admin.proto", r"At most ([\d,]+); 0 means", KIT, "PAGE_SIZE_MAX"),
    Bound("proto/penstock/v1/streams.proto", r"At most ([\d,]+); 0 means", KIT, "PAGE_SIZE_MAX"),
    Bound("docs/streams.md", r"has at most (\d+) of them", ENGINE, "DEDICATED_MAX"),
    Bound("docs/streams.md", r"keeps ([\d,]+) names", ENGINE, "PRODUCERS_MAX"),
    Bound("docs/streams.md", r"batch has at most ([\d,]+) attempts", ENGINE, "ATTEMPTS_MAX"),
    Bound("docs/streams.md", r"MiB and ([\d,]+) rows at once", f"{ENGINE}/staging/copying.rs", "ROUND_ROWS_MAX"),
    Bound("docs/streams.md", r"at most (\d+) partitions and", KIT, "PARTITION_SERIES_MAX"),
    Bound("docs/streams.md", r"partitions and ([\d,]+) groups", KIT, "GROUP_SERIES_MAX"),
    Bound("docs/streams.md", r"a batch of up to (\d+) MiB", f"{ENGINE}/staging/copying.rs", "ROUND_BYTES_MAX", MIB),
    Bound("docs/storage.md", r"at most ([\d,]+) in a virtual host", "broker/penstock/vhost/owner.py", "DELAYED_MAX"),
    Bound("docs/flight.md", r"2 MiB or ([\d,]+) rows", SERVE, "BATCH_ROWS"),
    Bound("docs/flight.md", r"A batch may have (\d+) MiB", SERVE, "PUT_BYTES_MAX", MIB),
    Bound("docs/flight.md", r"A partition has at most ([\d,]+) runs", "broker/penstock/spark/described.py", "RUNS_MAX"),
    Bound("docs/flight.md", r"runs, and an answer ([\d,]+)", "broker/penstock/spark/described.py", "RUNS_OF_ALL_MAX"),
    Bound(
        "docs/import.md",
        r"bodies above (\d+) MiB",
        "broker/penstock/importing/lavinmq/messages.py",
        "BODY_BYTES_MAX",
        MIB,
    ),
    Bound(
        "docs/import.md",
        r"definitions above (\d+) MiB",
        "broker/penstock/importing/lavinmq/definitions.py",
        "FILE_BYTES_MAX",
        MIB,
    ),
    Bound(
        "docs/import.md",
        r"JSON files above (\d+) MiB",
        "broker/penstock/importing/lavinmq/files.py",
        "JSON_BYTES_MAX",
        MIB,
    ),
    Bound(
        "docs/import.md",
        r"segments above (\d+) GiB",
        "broker/penstock/importing/lavinmq/messages.py",
        "SEGMENT_BYTES_MAX",
        1 << 30,
    ),
    Bound("docs/spark.md", r"`pollTimeoutMs` \| (\d+)", "broker/penstock/spark/options.py", "POLL_TIMEOUT_MS"),
    Bound("docs/spark.md", r"all ready messages, up to ([\d,]+)", ENGINE, "LEASE_MESSAGES_MAX"),
    Bound(
        "docs/spark.md", r"batches have about (\d+) MiB", "broker/penstock/pipeline/sinks.py", "DELTA_BYTES_MAX", MIB
    ),
    Bound("docs/archive.md", r"`fileBytesMax` \| (\d+)", "broker/penstock/pipeline/archive_document.py", "FILE_BYTES"),
    Bound("docs/archive.md", r"one row group of (\d+) MiB", "broker/penstock/archive/writing.py", "GROUP_BYTES", MIB),
]


def documented(bound: Bound) -> int:
    text = " ".join((ROOT / bound.document).read_text().split())
    found = re.search(bound.sentence, text)
    assert found is not None, f"{bound.document} no longer says: {bound.sentence}"
    return int(found.group(1).replace(",", "")) * bound.unit


def constant(bound: Bound) -> int:
    """Return the value of a constant: a number, or a product or a shift of numbers."""
    source = ROOT / bound.source
    files = sorted(source.rglob("*.rs")) if source.is_dir() else [source]
    text = "\n".join(file.read_text() for file in files)
    found = re.search(rf"\b{bound.constant}\b(?:: [\w\[\]]+)? = ([^;#\n]+)", text)
    assert found is not None, f"{bound.source} has no constant {bound.constant}"
    value = re.sub(r"Duration::from_secs\((\d+)\)", r"\1", found.group(1).strip()).replace("_", "")
    assert re.fullmatch(r"[\d *<()+-]+", value), value
    return int(eval(value))  # checked above: nothing but numbers


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: f"{bound.document}-{bound.constant}")
def test_a_bound_in_a_document_is_that_of_the_code(bound: Bound) -> None:
    assert documented(bound) == constant(bound)
