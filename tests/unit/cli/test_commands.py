"""The command line over a broker in memory: stdout, stderr, and the exit status."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.client.errors import NotAuthenticatedError
from penstock.client.sync import Connection
from penstock.client.transport import StatusError
from penstock.v1 import admin_pb2
from support.fake_transport import FakeBroker, FakeTransport, connect_to

Invoke = Callable[..., Result]


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def invoke(broker: FakeBroker) -> Invoke:
    """Return a function that runs a command, with a new transport each time."""

    def connect(uri: str, **options: Any) -> Connection:
        return connect_to(FakeTransport(broker))

    def run(*arguments: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, obj=connect)

    return run


def requests_of(broker: FakeBroker, name: str) -> list[bytes]:
    return [payload for method, payload in broker.calls if method == name]


def test_a_published_message_is_consumed(invoke: Invoke) -> None:
    assert invoke("queue", "declare", "jobs").exit_code == 0

    published = invoke("publish", "hello", "--routing-key", "jobs")
    consumed = invoke("consume", "jobs", "--count", "1")

    assert published.stdout == "1 published and confirmed\n"
    assert consumed.stdout == "hello\n"


def test_a_body_that_is_not_text_is_published_as_it_is(invoke: Invoke) -> None:
    invoke("queue", "declare", "jobs")

    published = invoke("publish", os.fsdecode(b"\xff\x00\xc3"), "-r", "jobs")

    assert (published.exit_code, published.stderr) == (0, "")
    assert invoke("get", "jobs").stdout_bytes == b"\xff\x00\xc3\n"


def test_each_line_of_stdin_is_a_message(invoke: Invoke) -> None:
    invoke("queue", "declare", "jobs")

    published = invoke("publish", "-", "-r", "jobs", "--output", "json", stdin=b"one\ntwo\r\n\nthree")
    consumed = invoke("consume", "jobs", "-n", "4")

    assert json.loads(published.stdout) == {"published": 4}
    assert consumed.stdout_bytes == b"one\ntwo\r\n\nthree\n"


def test_consuming_takes_messages_out_and_requeue_leaves_them(invoke: Invoke, broker: FakeBroker) -> None:
    invoke("queue", "declare", "jobs")
    invoke("publish", "-", "-r", "jobs", stdin="one\ntwo\nthree\n")

    seen = invoke("consume", "jobs", "--count", "2", "--requeue")
    taken = invoke("consume", "jobs", "--count", "2", "--ack")

    assert seen.stdout == taken.stdout == "one\ntwo\n"
    assert [stored.body for stored in broker.queues["jobs"].ready] == [b"three"]


def test_consuming_ends_when_nothing_comes(invoke: Invoke) -> None:
    invoke("queue", "declare", "jobs")

    assert invoke("consume", "jobs", "--idle", "0").stdout == ""


def test_a_consumed_message_is_one_line_of_json(invoke: Invoke) -> None:
    invoke("queue", "declare", "jobs")
    invoke("publish", "hello", "-r", "jobs", "--header", "n=1", "--header", "s=x", "-p", "content_type=text/plain")

    (line,) = invoke("consume", "jobs", "-n", "1", "--output", "json").stdout.splitlines()

    found = json.loads(line)
    assert (found["body"], found["routing_key"], found["redelivered"]) == ("hello", "jobs", False)
    assert found["headers"] == {"n": 1, "s": "x"}
    assert found["properties"] == {"content_type": "text/plain"}


def test_a_body_that_is_not_text_is_base64_in_json(invoke: Invoke) -> None:
    invoke("queue", "declare", "jobs")
    invoke("publish", "-", "-r", "jobs", stdin=b"\xff\xfe")

    assert json.loads(invoke("get", "jobs", "--output", "json").stdout)["body_base64"] == "//4="


def test_get_of_an_empty_queue_is_null(invoke: Invoke) -> None:
    invoke("queue", "declare", "jobs")

    result = invoke("get", "jobs", "--output", "json")

    assert result.stdout == "null\n"
    assert "no ready message" in result.stderr


def test_get_can_put_the_message_back(invoke: Invoke, broker: FakeBroker) -> None:
    invoke("queue", "declare", "jobs")
    invoke("publish", "hello", "-r", "jobs")

    assert invoke("get", "jobs", "--requeue").stdout == "hello\n"
    assert invoke("get", "jobs").stdout == "hello\n"
    assert not broker.queues["jobs"].ready
    assert not broker.queues["jobs"].unsettled


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("get", "missing"), "penstock: no queue 'missing' in vhost '/'"),
        (("consume", "missing"), "penstock: no queue 'missing' in vhost '/'"),
        (("publish", "x", "--exchange", "missing"), "penstock: no exchange 'missing'"),
        (("publish", "x", "-r", "nowhere"), "penstock: no queue 'nowhere'; declare it first"),
        (
            ("publish", "x"),
            "penstock: no exchange and no queue; name a queue with --routing-key, or an exchange with --exchange",
        ),
        (("queue", "purge", "missing"), "penstock: no queue 'missing'"),
        (
            ("definitions", "import", "/does/not/exist"),
            "penstock: cannot use '/does/not/exist': no such file or directory",
        ),
    ],
)
def test_what_went_wrong_is_one_line_on_stderr(invoke: Invoke, arguments: tuple[str, ...], words: str) -> None:
    result = invoke(*arguments)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(words)
    assert len(result.stderr.splitlines()) == 1


def test_a_wrong_password_is_one_line_on_stderr() -> None:
    def connect(uri: str, **options: Any) -> Connection:
        raise NotAuthenticatedError("user 'guest' does not exist or the password is wrong", code=16)

    result = CliRunner().invoke(app, ["status"], obj=connect)

    assert result.exit_code == 1
    assert result.stderr == "penstock: user 'guest' does not exist or the password is wrong\n"


def test_an_unreachable_broker_is_one_line_on_stderr() -> None:
    result = CliRunner().invoke(app, ["status", "--uri", "penstock://guest:guest@127.0.0.1:1/"])

    assert result.exit_code == 1
    assert result.stderr.startswith("penstock: no broker answers at 127.0.0.1:1")
    assert len(result.stderr.splitlines()) == 1


def test_a_wrong_uri_is_one_line_on_stderr() -> None:
    result = CliRunner().invoke(app, ["status", "--uri", "amqp://h"])

    assert result.exit_code == 1
    assert result.stderr.startswith("penstock: the URI must start with penstock://")


def test_a_bug_keeps_its_traceback(broker: FakeBroker) -> None:
    def connect(uri: str, **options: Any) -> Connection:
        raise AssertionError("a bug")

    assert isinstance(CliRunner().invoke(app, ["status"], obj=connect).exception, AssertionError)


def test_the_uri_comes_from_the_environment() -> None:
    uris: list[str] = []

    def connect(uri: str, **options: Any) -> Connection:
        uris.append(uri)
        return connect_to(FakeTransport(FakeBroker()))

    CliRunner().invoke(app, ["queue", "list"], obj=connect, env={"PENSTOCK_URI": "penstock://elsewhere"})
    CliRunner().invoke(app, ["queue", "list"], obj=connect, env={"PENSTOCK_URI": ""})

    assert uris == ["penstock://elsewhere", "penstock://guest:guest@127.0.0.1:5680/"]


def test_queues_are_listed_for_people_and_for_programs(invoke: Invoke) -> None:
    invoke("queue", "declare", "jobs")

    table = invoke("queue", "list").stdout
    found = json.loads(invoke("queue", "list", "--output", "json").stdout)

    assert "ready_count" in table
    assert "jobs" in table
    assert [(queue["name"], queue["ready_count"]) for queue in found] == [("jobs", 0)]


def test_queues_are_listed_with_the_arguments_that_have_an_effect(invoke: Invoke, broker: FakeBroker) -> None:
    jobs = admin_pb2.Queue(name="jobs", policy="p", operator_policy="o")
    jobs.effective_arguments["x-max-length"].int_value = 3
    found = admin_pb2.ListQueuesResponse(queues=[jobs, admin_pb2.Queue(name="more", policy="a")]).SerializeToString()
    broker.answers["ListQueues"] = lambda _: found

    table = invoke("queue", "list", "--arguments").stdout
    listed = json.loads(invoke("queue", "list", "--arguments", "--sort", "policy", "-o", "json").stdout)

    assert "effective_arguments" in table
    assert "x-max-length" in table
    assert [(queue["name"], queue["policy"], queue["operator_policy"]) for queue in listed] == [
        ("more", "a", ""),
        ("jobs", "p", "o"),
    ]
    assert listed[1]["effective_arguments"] == {"x-max-length": 3}
    assert "cannot be shown with rates" in invoke("queue", "list", "--arguments", "--rates").stderr
    assert invoke("queue", "list", "--arguments", "--sort", "ready_count").exit_code == 2


def test_a_declared_queue_is_described(invoke: Invoke) -> None:
    found = json.loads(invoke("queue", "declare", "--output", "json").stdout)

    assert found == {"name": "amq.gen-1", "ready_count": 0, "consumer_count": 0}


def test_arguments_are_json_or_text(invoke: Invoke, broker: FakeBroker) -> None:
    invoke("queue", "declare", "jobs", "--transient", "--auto-delete", "-a", "x-durability=os", "-a", "x-n=5")

    queue = admin_pb2.DeclareQueueRequest.FromString(requests_of(broker, "DeclareQueue")[-1]).queue
    assert (queue.durable, queue.auto_delete) == (False, True)
    assert queue.arguments["x-durability"].string_value == "os"
    assert queue.arguments["x-n"].int_value == 5


def test_an_argument_without_a_value_is_a_mistake_in_use(invoke: Invoke) -> None:
    result = invoke("queue", "declare", "jobs", "-a", "x-durability")

    assert result.exit_code == 2
    assert "is not NAME=VALUE" in result.stderr


def test_an_exchange_is_declared(invoke: Invoke, broker: FakeBroker) -> None:
    assert invoke("exchange", "declare", "web", "--type", "topic").exit_code == 0

    exchange = admin_pb2.DeclareExchangeRequest.FromString(requests_of(broker, "DeclareExchange")[0]).exchange
    assert (exchange.name, exchange.type, exchange.durable) == ("web", "topic", True)


def test_bindings_go_to_queues_and_exchanges(invoke: Invoke, broker: FakeBroker) -> None:
    invoke("binding", "add", "web", "jobs", "--routing-key", "a.#")
    invoke("binding", "add", "web", "other", "--to-exchange")
    invoke("binding", "delete", "web", "jobs", "--routing-key", "a.#")

    to_queue, to_exchange = (
        admin_pb2.BindRequest.FromString(payload).binding for payload in requests_of(broker, "Bind")
    )
    removed = admin_pb2.UnbindRequest.FromString(requests_of(broker, "Unbind")[0]).binding
    assert (to_queue.source, to_queue.destination, to_queue.routing_key) == ("web", "jobs", "a.#")
    assert to_exchange.destination_kind == admin_pb2.DESTINATION_KIND_EXCHANGE
    assert removed == to_queue


def test_a_password_is_asked_for_and_never_shown(invoke: Invoke, broker: FakeBroker) -> None:
    result = invoke("user", "add", "walter", "--tag", "administrator", stdin="secret\nsecret\n")

    request = admin_pb2.PutUserRequest.FromString(requests_of(broker, "PutUser")[0])
    assert (request.name, request.password, list(request.tags)) == ("walter", "secret", ["administrator"])
    assert "secret" not in result.output


def test_the_tags_of_a_user_are_replaced(invoke: Invoke, broker: FakeBroker) -> None:
    user = admin_pb2.User(name="walter", tags=["administrator"])
    broker.answers["ListUsers"] = lambda _: admin_pb2.ListUsersResponse(users=[user]).SerializeToString()

    invoke("user", "set-password", "walter", "--password", "secret")
    invoke("user", "set-tags", "walter", "monitoring", "policymaker")
    invoke("user", "set-tags", "walter", "--force")

    secret, named, none = (admin_pb2.PutUserRequest.FromString(sent) for sent in requests_of(broker, "PutUser"))
    assert (secret.password, secret.keep_tags) == ("secret", True)
    assert (list(named.tags), named.keep_tags, named.force) == (["monitoring", "policymaker"], False, False)
    assert (list(none.tags), none.keep_tags, none.force) == ([], False, True)
    assert not none.HasField("password")


def test_a_user_is_added_once(invoke: Invoke, broker: FakeBroker) -> None:
    users = admin_pb2.ListUsersResponse(users=[admin_pb2.User(name="walter")])
    broker.answers["ListUsers"] = lambda _: users.SerializeToString()

    result = invoke("user", "add", "walter", "--password", "secret")

    assert (result.exit_code, requests_of(broker, "PutUser")) == (1, [])
    assert result.stderr == "penstock: user 'walter' exists already; use set-password or set-tags\n"


def test_a_password_is_read_from_stdin(invoke: Invoke, broker: FakeBroker) -> None:
    result = invoke("user", "add", "walter", "--password-stdin", stdin="secret word\nnot this\n")

    assert result.exit_code == 0
    request = admin_pb2.PutUserRequest.FromString(requests_of(broker, "PutUser")[0])
    assert request.password == "secret word"


@pytest.mark.parametrize("flags", [("--password-stdin",), ("--password", ""), ("--password", "x", "--password-stdin")])
def test_a_password_that_is_empty_or_given_twice_is_wrong_use(
    invoke: Invoke, broker: FakeBroker, flags: tuple[str, ...]
) -> None:
    result = invoke("user", "set-password", "walter", *flags, stdin="\n")

    assert result.exit_code == 2
    assert requests_of(broker, "PutUser") == []


@pytest.mark.parametrize("value", ["high", "true", "1.5", ""])
def test_a_property_of_another_type_is_wrong_use(invoke: Invoke, value: str) -> None:
    result = invoke("publish", "hello", "-r", "jobs", "--property", f"priority={value}")

    assert result.exit_code == 2
    assert "property 'priority' must be a whole number" in result.stderr


def test_a_password_on_the_command_line_is_not_asked_for(invoke: Invoke, broker: FakeBroker) -> None:
    result = invoke("user", "add", "walter", "--password", "secret", "--output", "json")

    assert json.loads(result.stdout) == {"name": "walter"}


def test_permissions_are_set(invoke: Invoke, broker: FakeBroker) -> None:
    invoke("permission", "set", "walter", "--write", "jobs", "--read", ".*")

    permission = admin_pb2.SetPermissionRequest.FromString(requests_of(broker, "SetPermission")[0]).permission
    assert (permission.user, permission.vhost, permission.configure) == ("walter", "/", "")
    assert (permission.write, permission.read) == ("jobs", ".*")


def test_topic_permissions_are_set_and_deleted(invoke: Invoke, broker: FakeBroker) -> None:
    invoke("permission", "set-topic", "walter", "logs", "--write", "{username}.*")
    invoke("permission", "delete-topic", "walter", "logs", "--vhost", "other")
    invoke("permission", "delete-topic", "walter")

    permission = admin_pb2.SetTopicPermissionRequest.FromString(requests_of(broker, "SetTopicPermission")[0]).permission
    assert (permission.user, permission.vhost, permission.exchange) == ("walter", "/", "logs")
    assert (permission.write, permission.read) == ("{username}.*", "")
    one, all_ = map(admin_pb2.DeleteTopicPermissionRequest.FromString, requests_of(broker, "DeleteTopicPermission"))
    assert (one.user, one.vhost, one.exchange) == ("walter", "other", "logs")
    assert (all_.vhost, all_.HasField("exchange")) == ("/", False)


def test_status_is_json_with_its_counts(invoke: Invoke, broker: FakeBroker) -> None:
    response = admin_pb2.GetStatusResponse(version="1", ready_count=5, unacked_count=2)
    response.recovery.records = 7
    broker.answers["GetStatus"] = lambda _: response.SerializeToString()

    found = json.loads(invoke("status", "--output", "json").stdout)

    assert (found["ready_count"], found["unacked_count"], found["recovery"]["records"]) == (5, 2, 7)
    assert "ready_count" in invoke("status").stdout


def test_what_an_import_skips_is_printed(invoke: Invoke, broker: FakeBroker) -> None:
    response = admin_pb2.ImportDefinitionsResponse(added={"queues": 1}, skipped=["queue 'q' has x-message-ttl"])
    broker.answers["ImportDefinitions"] = lambda _: response.SerializeToString()

    result = invoke("definitions", "import", "-", "--skip-unsupported", stdin="{}")

    (sent,) = map(admin_pb2.ImportDefinitionsRequest.FromString, requests_of(broker, "ImportDefinitions"))
    assert sent.skip_unsupported
    assert result.stderr == "skipped: queue 'q' has x-message-ttl\n"
    assert result.stdout == "added or changed: queues 1\n"


@pytest.mark.parametrize("content", [b"{", b"", b"\xff", b"[" * 200_000])
def test_a_file_of_definitions_that_is_not_json_is_named(
    invoke: Invoke, broker: FakeBroker, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "definitions.json"
    file.write_bytes(content)

    result = invoke("definitions", "import", str(file))

    assert (result.exit_code, requests_of(broker, "ImportDefinitions")) == (1, [])
    assert result.stderr.startswith(f"penstock: '{file}' is not JSON: ")
    assert invoke("definitions", "import", stdin="{").stderr.startswith("penstock: 'stdin' is not JSON: ")


def test_only_its_owner_may_read_a_new_file_of_definitions(invoke: Invoke, broker: FakeBroker, tmp_path: Path) -> None:
    broker.answers["ExportDefinitions"] = lambda _: admin_pb2.ExportDefinitionsResponse(json=b"{}").SerializeToString()

    invoke("definitions", "export", str(tmp_path / "definitions.json"))

    assert (tmp_path / "definitions.json").stat().st_mode & 0o777 == 0o600


def test_definitions_go_out_and_in(invoke: Invoke, broker: FakeBroker, tmp_path: Path) -> None:
    document = b'{"queues": []}'
    broker.answers["ExportDefinitions"] = lambda _: admin_pb2.ExportDefinitionsResponse(
        json=document
    ).SerializeToString()
    broker.answers["ImportDefinitions"] = lambda _: admin_pb2.ImportDefinitionsResponse(
        added={"queues": 2}
    ).SerializeToString()
    file = tmp_path / "definitions.json"

    printed = invoke("definitions", "export")
    written = invoke("definitions", "export", str(file))
    read = invoke("definitions", "import", str(file), "--output", "json")

    assert json.loads(printed.stdout) == {"queues": []}
    assert written.exit_code == 0
    assert file.read_bytes() == document
    assert admin_pb2.ImportDefinitionsRequest.FromString(requests_of(broker, "ImportDefinitions")[0]).json == document
    assert json.loads(read.stdout) == {"added": {"queues": 2}, "skipped": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ("exchange", "list"),
        ("binding", "list"),
        ("vhost", "list"),
        ("vhost", "add", "v"),
        ("vhost", "delete", "v"),
        ("user", "list"),
        ("user", "delete", "walter"),
        ("permission", "list"),
        ("permission", "delete", "walter"),
        ("permission", "list-topic"),
        ("permission", "set-topic", "walter", "logs"),
        ("permission", "delete-topic", "walter"),
        ("exchange", "delete", "web"),
        ("queue", "delete", "jobs"),
        ("publish", "x", "--no-mandatory"),
    ],
)
def test_every_command_prints_nothing_but_json_on_stdout(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments, "--output", "json")

    assert result.exit_code == 0
    json.loads(result.stdout)


def test_an_error_with_json_leaves_stdout_empty(invoke: Invoke, broker: FakeBroker) -> None:
    broker.refusal = StatusError(7, "user 'guest' may not configure 'jobs'", b"")

    result = invoke("queue", "declare", "jobs", "--output", "json")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "penstock: user 'guest' may not configure 'jobs'\n"


def test_an_unknown_property_is_named(invoke: Invoke) -> None:
    result = invoke("publish", "x", "-p", "colour=red")

    assert result.exit_code == 2
    assert "no property 'colour'" in result.stderr


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("penstock ")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("serve", ("--data-dir", "--grpc", "--amqp", "--http", "--metrics", "--config")),
        ("perf", ("throughput", "latency", "amqp")),
        ("log", ("inspect", "verify", "repair")),
    ],
)
def test_the_commands_that_need_a_broker_of_their_own_have_their_flags(command: str, flags: tuple[str, ...]) -> None:
    text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output

    assert all(flag in text for flag in flags)


def test_perf_has_its_flags() -> None:
    text = CliRunner().invoke(app, ["perf", "throughput", "--help"], env={"COLUMNS": "200"}).output

    flags = (
        "--size --batch --publishers --consumers --queues --in-flight --seconds --messages --until-empty --durability"
    )
    assert all(flag in text for flag in flags.split())


def test_perf_of_any_amqp_broker_has_its_flags() -> None:
    text = CliRunner().invoke(app, ["perf", "amqp", "--help"], env={"COLUMNS": "200"}).output

    flags = "--uri --size --publishers --consumers --queues --rate --in-flight --auto-ack --ack-batch --prefetch --pid"
    assert all(flag in text for flag in flags.split())


def test_settings_are_shown_with_where_they_come_from_and_without_secrets(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('default_password = "hidden"')
    monkeypatch.setenv("PENSTOCK_IO_THREADS", "3")
    monkeypatch.setenv("PENSTOCK_HTTP_AUTH_USER_URL", "https://anna:s3cret@auth.example.com/user")

    shown = json.loads(invoke("config", "show", "--config", str(file), "--output", "json").stdout)

    rows = {row["setting"]: (row["value"], row["from"]) for row in shown}
    assert rows["io_threads"] == (3, "in the variable PENSTOCK_IO_THREADS")
    assert rows["default_password"] == ("**********", f"in {file}")
    assert rows["grpc"] == ("127.0.0.1:5680", "default")
    assert rows["http_auth_user_url"][0] == "https://anna:***@auth.example.com/user"


def test_settings_are_checked_without_a_start(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('grcp = "off"\nio_threads = "two"')

    right = invoke("serve", "--check", "--data-dir", str(tmp_path / "data"))
    wrong = invoke("serve", "--check", "--config", str(file))

    assert (right.exit_code, right.stdout) == (0, "the settings are valid\n")
    assert not (tmp_path / "data").exists()
    assert wrong.exit_code == 1
    assert [line.partition("(")[0] for line in wrong.stderr.splitlines()] == [
        "penstock: the setting 'io_threads' ",
        "penstock: there is no setting 'grcp' ",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("publish", "x", "-r", "jobs", "--durability", "memory"),
        ("stream", "publish", "events", "x", "--durability", "memory"),
        ("perf", "throughput", "--durability", "memory"),
        ("serve", "--log-level", "loud"),
        ("publish", "x", "-r", "jobs", "--property", "foo=bar"),
        ("queue", "list", "--output", "xml"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_wrong_use(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)

    assert result.exit_code == 2
    assert "Value error" not in result.stderr


HOSTILE = "a\x1b[31m\x9b2J\u202eb\x7f"


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "list"),
        ("queue", "list", "-o", "table"),
        ("queue", "list", "-o", "json"),
        ("queue", "declare", HOSTILE, "-a", f"x-{HOSTILE}={HOSTILE}"),
        ("queue", "delete", HOSTILE),
        ("consume", "no" + HOSTILE),
        ("get", HOSTILE),
    ],
)
def test_a_name_cannot_command_a_terminal(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    invoke("queue", "declare", HOSTILE)
    result = invoke(*arguments)

    assert "\\x1b[31m" in result.output or "\\u001b[31m" in result.output
    assert not set("\x1b\x9b\x7f") & set(result.output)
    if arguments[-1] == "json":
        assert json.loads(result.stdout)[0]["name"] == HOSTILE
