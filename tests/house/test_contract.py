"""Lints the gRPC contract by its descriptors, with the rules of buf's STANDARD category that a change could break.

The wire format is permanent, so names have one form from the first version on.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[2] / "proto"
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
PASCAL = re.compile(r"([A-Z][a-z0-9]*)+")


@pytest.fixture(scope="module")
def files() -> list[FileDescriptorProto]:
    return compiled(PROTO)


def compiled(folder: Path) -> list[FileDescriptorProto]:
    with tempfile.TemporaryDirectory() as out:
        target = Path(out) / "set.binpb"
        sources = sorted(str(path) for path in folder.rglob("*.proto"))
        assert (
            protoc.main(["protoc", f"-I{folder}", "--include_source_info", f"--descriptor_set_out={target}", *sources])
            == 0
        )
        return list(FileDescriptorSet.FromString(target.read_bytes()).file)


def offences(file: FileDescriptorProto) -> list[str]:
    """Return every violation in `file`, one line each."""
    found = []
    if not re.fullmatch(r"[a-z.]+\.v[0-9]+", file.package):
        found.append(f"package {file.package} lacks a version suffix")
    if not file.name.startswith(file.package.replace(".", "/") + "/"):
        found.append(f"{file.name} does not lie in the folder of its package {file.package}")
    if not has_comment(file, [12]):
        found.append(f"{file.name} does not open with a comment above its syntax line")
    for message in messages(file):
        found += offences_of_message(message)
    for enum in enums(file):
        found += offences_of_enum(enum)
    for service in file.service:
        found += offences_of_service(service)
    return found


def offences_of_message(message: DescriptorProto) -> list[str]:
    found = [] if PASCAL.fullmatch(message.name) else [f"message {message.name} is not PascalCase"]
    names = [field.name for field in message.field] + [oneof.name.lstrip("_") for oneof in message.oneof_decl]
    return found + [
        f"{message.name}.{name} is not lower_snake_case" for name in names if not LOWER_SNAKE.fullmatch(name)
    ]


def offences_of_enum(enum: EnumDescriptorProto) -> list[str]:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    found = [
        f"{enum.name}.{value.name} lacks the prefix {prefix}"
        for value in enum.value
        if not value.name.startswith(prefix)
    ]
    found += [f"{value.name} is not UPPER_SNAKE_CASE" for value in enum.value if not UPPER_SNAKE.fullmatch(value.name)]
    zero = [value.name for value in enum.value if value.number == 0]
    if zero != [prefix + "UNSPECIFIED"]:
        found.append(f"the zero value of {enum.name} is not {prefix}UNSPECIFIED")
    return found


def offences_of_service(service: ServiceDescriptorProto) -> list[str]:
    found = [] if service.name.endswith("Service") else [f"service {service.name} does not end in Service"]
    for method in service.method:
        if not PASCAL.fullmatch(method.name):
            found.append(f"{service.name}.{method.name} is not PascalCase")
        for kind, type_name in (("Request", method.input_type), ("Response", method.output_type)):
            if type_name.rsplit(".", 1)[-1] != method.name + kind:
                found.append(f"{service.name}.{method.name} takes or gives {type_name}, not {method.name}{kind}")
    return found


def messages(file: FileDescriptorProto) -> Iterator[DescriptorProto]:
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        if message.options.map_entry:
            continue
        yield message
        waiting += message.nested_type


def enums(file: FileDescriptorProto) -> Iterator[EnumDescriptorProto]:
    yield from file.enum_type
    for message in messages(file):
        yield from message.enum_type


def has_comment(file: FileDescriptorProto, path: list[int]) -> bool:
    return any(
        list(place.path) == path and (place.leading_comments.strip() or any(place.leading_detached_comments))
        for place in file.source_code_info.location
    )


def test_the_contract_keeps_the_rules(files: list[FileDescriptorProto]) -> None:
    assert [line for file in files for line in offences(file)] == []


def test_no_two_methods_share_a_request_or_a_response(files: list[FileDescriptorProto]) -> None:
    methods = [method for file in files for service in file.service for method in service.method]

    uses = Counter(name for method in methods for name in (method.input_type, method.output_type))

    assert [name for name, count in uses.items() if count > 1] == []


def test_every_method_of_the_message_path_is_explained(files: list[FileDescriptorProto]) -> None:
    messaging = next(file for file in files if file.name.endswith("messaging.proto"))

    silent = [
        method.name
        for index, method in enumerate(messaging.service[0].method)
        if not has_comment(messaging, [6, 0, 2, index])
    ]

    assert silent == []


def test_the_rules_find_what_breaks_them(tmp_path: Path) -> None:
    (tmp_path / "bad.proto").write_text(
        'syntax = "proto3"; package bad;\n'
        "enum Kind { FIRST = 0; }\n"
        "message thing { string Name = 1; }\n"
        "service Things { rpc Do(thing) returns (thing); }\n"
    )

    found = offences(compiled(tmp_path)[0])

    for part in (
        "version suffix",
        "comment",
        "PascalCase",
        "lower_snake_case",
        "prefix",
        "UNSPECIFIED",
        "Service",
        "DoRequest",
    ):
        assert any(part in line for line in found), part
