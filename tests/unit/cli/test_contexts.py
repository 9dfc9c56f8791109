"""Which broker a command connects to, and with which password."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.cli.options import complete_queues
from penstock.client.errors import ConnectionLostError
from penstock.client.sync import Connection
from penstock.client.uri import parse_uri
from support.fake_transport import FakeBroker, FakeTransport, connect_to

Invoke = Callable[..., Result]
PROD = "penstocks://anna@prod.example.com:5680/shop"


@pytest.fixture
def uris() -> list[str]:
    return []


@pytest.fixture
def invoke(uris: list[str]) -> Invoke:
    def connect(uri: str, **options: Any) -> Connection:
        uris.append(uri)
        return connect_to(FakeTransport(FakeBroker()))

    def run(*arguments: str, env: dict[str, str] | None = None, stdin: str = "") -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, obj=connect, env=env)

    return run


def with_password(password: str) -> str:
    return PROD.replace("anna@", f"anna:{password}@")


def test_a_context_is_used_by_name_or_all_the_time(invoke: Invoke, uris: list[str]) -> None:
    added = invoke("context", "add", "local", "penstock://guest:guest@127.0.0.1:1/")
    invoke("context", "add", "prod", with_password("s"))
    invoke("queue", "list")
    invoke("queue", "list", "--context", "prod")
    used = invoke("context", "use", "prod")
    invoke("queue", "list")
    invoke("queue", "list", env={"PENSTOCK_CONTEXT": "local"})

    assert added.stdout == "context 'local' added and in use\n"
    assert used.stdout == "context 'prod' in use\n"
    local = "penstock://guest:guest@127.0.0.1:1/"
    assert uris == [local, with_password("s"), with_password("s"), local]


def test_a_uri_counts_more_than_the_current_context(invoke: Invoke, uris: list[str]) -> None:
    invoke("context", "add", "prod", with_password("s"))
    invoke("queue", "list", env={"PENSTOCK_URI": "penstock://variable"})
    invoke("queue", "list", "--uri", "penstock://flag", env={"PENSTOCK_URI": "penstock://variable"})
    invoke("queue", "list", "--context", "prod", env={"PENSTOCK_URI": "penstock://variable"})
    both = invoke("queue", "list", "--context", "prod", "--uri", "penstock://flag")

    assert uris == ["penstock://variable", "penstock://flag", with_password("s")]
    assert both.exit_code == 2


def test_contexts_are_listed_without_passwords_and_removed(invoke: Invoke) -> None:
    invoke("context", "add", "prod", with_password("s3cret"))
    listed = invoke("context", "list", "--output", "json")
    invoke("context", "remove", "prod")

    (row,) = json.loads(listed.stdout)
    assert row == {"name": "prod", "current": True, "uri": with_password("***"), "password_file": None}
    assert json.loads(invoke("context", "list", "-o", "json").stdout) == []


def test_only_its_owner_may_read_the_file_of_contexts(invoke: Invoke, tmp_path: Path) -> None:
    for _ in range(2):
        invoke("context", "add", "a.b", with_password('q"\\'.replace("\\", "%5C").replace('"', "%22")))

    file = tmp_path / "config" / "penstock" / "contexts.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["contexts.toml"]
    assert "a.b" in invoke("context", "list").stdout


@pytest.mark.parametrize("user", ["a\U0001f600", "\u00e9", "a'", "\u202e"])
def test_every_character_of_a_uri_and_a_file_is_kept(
    invoke: Invoke, uris: list[str], tmp_path: Path, user: str
) -> None:
    file = tmp_path / f'{user}"\\\x7f\t'
    file.write_text("s")
    invoke("context", "add", "odd", f"penstock://{user}@here/", "--password-file", str(file))
    result = invoke("queue", "list")

    assert (result.exit_code, result.stderr) == (0, "")
    assert [parse_uri(uri).user for uri in uris] == [user]


def test_a_password_with_an_at_sign_is_hidden_as_a_whole(invoke: Invoke) -> None:
    invoke("context", "add", "a", "penstock://anna:s3@cret@here:1/shop")
    (row,) = json.loads(invoke("context", "list", "-o", "json").stdout)

    assert row["uri"] == "penstock://anna:***@here:1/shop"


@pytest.mark.parametrize(
    ("mode", "uri", "verb"),
    [
        (0o644, PROD.replace("anna", "anna:s"), "read"),
        (0o640, PROD.replace("anna", ":s"), "read"),
        (0o602, PROD, "change"),
    ],
)
def test_a_file_of_contexts_that_others_can_misuse_is_refused(
    invoke: Invoke, uris: list[str], tmp_path: Path, mode: int, uri: str, verb: str
) -> None:
    invoke("context", "add", "prod", uri)
    (tmp_path / "config" / "penstock" / "contexts.toml").chmod(mode)
    result = invoke("queue", "list")

    assert (result.exit_code, uris) == (1, [])
    assert f"other users can {verb}; run chmod 600" in result.stderr


def test_a_file_of_contexts_without_passwords_may_be_read_by_others(
    invoke: Invoke, uris: list[str], tmp_path: Path
) -> None:
    invoke("context", "add", "prod", PROD)
    (tmp_path / "config" / "penstock" / "contexts.toml").chmod(0o644)
    invoke("queue", "list")

    assert uris == [PROD]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("queue", "list", "--context", "nope"), "penstock: no context 'nope' in "),
        (("context", "use", "nope"), "penstock: no context 'nope' in "),
        (("context", "remove", "nope"), "penstock: no context 'nope' in "),
        (("context", "add", "a b", PROD), "penstock: a context cannot be named 'a b'; "),
        (("queue", "list", "--uri", "penstock://a[:b@here/", "-W"), "penstock: the URI's host cannot be read; "),
        (("context", "add", "a", "http://x"), "penstock: the URI must start with penstock://"),
    ],
)
def test_a_wrong_context_is_one_line(invoke: Invoke, arguments: tuple[str, ...], words: str) -> None:
    result = invoke(*arguments)

    assert result.exit_code == 1
    assert result.stderr.startswith(words)
    assert len(result.stderr.splitlines()) == 1


def test_a_file_of_contexts_that_is_corrupt_is_named(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "config" / "penstock" / "contexts.toml"
    file.parent.mkdir(parents=True)

    for content in (
        "no toml",
        "contexts = 5",
        "current = 7",
        "[contexts.a]\nurl = 1",
        'current = "a"\n[contexts.a]\nuri = 5',
        'current = "a"\n[contexts.a]\nuri = "penstock://here"\npassword_file = 5',
    ):
        file.write_text(content)
        result = invoke("queue", "list")
        assert (result.exit_code, str(file) in result.stderr) == (1, True)


def test_a_user_without_a_home_directory_has_no_contexts(
    invoke: Invoke, uris: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", home)

    assert invoke("queue", "list").exit_code == 0
    assert uris == ["penstock://guest:guest@127.0.0.1:5680/"]
    for arguments in (("context", "add", "prod", PROD), ("queue", "list", "--context", "prod")):
        refused = invoke(*arguments)
        assert refused.exit_code != 0
        assert "set XDG_CONFIG_HOME" in refused.stderr


def test_a_password_comes_from_a_file_a_variable_or_a_prompt(invoke: Invoke, uris: list[str], tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from file\nnot this\n")

    invoke("queue", "list", "--uri", PROD, "--password-file", str(file))
    invoke("queue", "list", "--uri", PROD, env={"PENSTOCK_PASSWORD": "variable"})
    invoke("queue", "list", "--uri", PROD, "-W", stdin="prompt\n")
    invoke("context", "add", "prod", PROD, "--password-file", str(file))
    invoke("queue", "list")

    assert uris == [with_password(each) for each in ("from%20file", "variable", "prompt", "from%20file")]


def test_a_variable_does_not_replace_the_password_of_a_uri(invoke: Invoke, uris: list[str]) -> None:
    invoke("queue", "list", "--uri", with_password("own"), env={"PENSTOCK_PASSWORD": "variable"})

    assert uris == [with_password("own")]


def test_a_password_file_that_cannot_be_read_is_one_line(invoke: Invoke) -> None:
    result = invoke("queue", "list", "--uri", PROD, "--password-file", "/does/not/exist")

    assert (result.exit_code, result.stderr) == (
        1,
        "penstock: cannot use '/does/not/exist': no such file or directory\n",
    )


class FakeContext:
    """What a completion gets."""

    def __init__(self, connect: Callable[..., Connection]) -> None:
        self.obj = connect
        self.params: dict[str, Any] = {"uri": "penstock://x:x@here/"}

    def get_parameter_source(self, name: str) -> None:
        return None


def test_names_are_completed() -> None:
    broker = FakeBroker()
    connection = connect_to(FakeTransport(broker))
    for name in ("orders.new", "orders.old", "mail"):
        connection.declare_queue(name)
    asked: list[Any] = []

    def connect(uri: str, **options: Any) -> Connection:
        asked.append((uri, options))
        return connection

    found = complete_queues(FakeContext(connect), "ord")  # type: ignore[arg-type]

    assert found == ["orders.new", "orders.old"]
    assert asked == [("penstock://x:x@here/", {"timeout": 1.0})]


def test_a_completion_is_silent_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    def connect(uri: str, **options: Any) -> Connection:
        raise ConnectionLostError("no broker answers")

    assert complete_queues(FakeContext(connect), "ord") == []  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("uri", "asks"), [("penstock://x@here/", False), ("penstock://x:x@here/", True)])
def test_a_completion_never_asks_for_a_password(monkeypatch: pytest.MonkeyPatch, uri: str, asks: bool) -> None:
    prompts: list[str] = []

    def prompt(text: str, **options: Any) -> str:
        prompts.append(text)
        return "x"

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.delenv("PENSTOCK_PASSWORD", raising=False)
    context = FakeContext(lambda uri, **options: connect_to(FakeTransport(FakeBroker())))
    context.params = {"uri": uri, "asks_password": asks}

    assert complete_queues(context, "ord") == []  # type: ignore[arg-type]
    assert prompts == []
