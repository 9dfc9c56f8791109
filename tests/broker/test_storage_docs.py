"""The commands of docs/storage.md, run as written and in order, on a broker of their own.

The output shown in the page must appear: a line may have other numbers and other column widths, `…` stands for any
lines. The paths of the page are put below a temporary directory, and `systemctl` is the test's.
"""

import contextlib
import os
import re
import subprocess
from pathlib import Path
from threading import Thread

import pytest

from support import Broker
from support.broker import penstock_command

DOCS = Path(__file__).parents[2] / "docs" / "storage.md"
VHOST = "42099b4af021e53fd8fd4e056c2568d7c2e3ffa8"
STEPS = re.compile(r"^<!-- test: (\w+) -->$|^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
# Commands that users would paste into a shell, and the words of them that are not arguments.
COMMAND = re.compile(r"(\$ |penstock |systemctl |cp |ls |rm |mv )")
VERBS = re.compile(r"[a-z]+(?: [a-z]+\b)*")
PLACES = ("/var/lib/", "/var/backups/")


class Page:
    """Runs the page's steps; the caller compares `shown` and `printed`."""

    def __init__(self, broker: Broker, root: Path) -> None:
        self._broker = broker
        self._root = root
        self._environment = os.environ | {
            "PATH": f"{Path(penstock_command()).parent}:{os.environ['PATH']}",
            "PENSTOCK_URI": broker.uri(),
            "LC_ALL": "C",
        }

    def perform(self, command: str) -> str:
        if command == "systemctl stop penstock":
            self._broker.stop()
            return ""
        if command == "systemctl start penstock":
            self._broker.start()
            return ""
        for place in PLACES:
            command = command.replace(place, f"{self._root}{place}")
        return on_a_terminal(command, self._environment).replace(str(self._root), "")

    def flip(self) -> None:
        """Change one bit of two orders while the broker is down."""
        self._broker.stop()
        segment = self._broker.data_dir / VHOST / "msgs.0000000001"
        content = bytearray(segment.read_bytes())
        for order in (b"order 2500 of", b"order 4900 of"):
            content[content.index(order)] ^= 1
        segment.write_bytes(content)
        self._broker.start()


def on_a_terminal(command: str, environment: dict[str, str]) -> str:
    """Return what a command prints on a terminal without colours, and then its errors; of others what they pipe."""
    ours, theirs = os.openpty()
    printed = bytearray()

    def read() -> None:
        # A terminal whose other side is closed is an error to read.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65_536):
                printed.extend(part)

    reader = Thread(target=read)
    with subprocess.Popen(
        ["bash", "-c", command if command.startswith("penstock ") else f"{command} | cat"],
        env={**environment, "TERM": "xterm", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        reader.start()
        errors = process.communicate(timeout=60)[1]
    reader.join()
    os.close(ours)
    return re.sub(r"\x1b\[[\d;]*m", "", printed.decode()).replace("\r\n", "\n") + errors.decode()


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Return each command with its expected lines."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(lines[0], lines[1:]) for lines in (part.splitlines() for part in parts)]


def plain(line: str) -> str:
    """Return a line without the parts that differ from run to run: numbers, the width of columns."""
    return re.sub(
        r"[\d,.]*\d", "0", re.sub(r"([━─\s])\1*", r"\1", re.sub(r"[┏┗┡└]?[━┳╇┻┩┓─┴┘]{2,}", "━", line))
    ).strip()


def assert_shown(command: str, shown: list[str], printed: str) -> None:
    found = [plain(line) for line in printed.splitlines() if line.strip()]
    wanted = [plain(line) for line in shown if line.strip()]
    if "…" in wanted:
        wanted = [line for line in wanted if line != "…"]
        missing = [line for line in wanted if line not in found]
        assert missing == [], f"{command} printed\n{printed}"
    else:
        assert found == wanted, f"{command} printed\n{printed}"


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_shows(tmp_path: Path) -> None:
    for place in PLACES:
        (tmp_path / place.strip("/")).mkdir(parents=True)
    (tmp_path / "var/backups/penstock").mkdir()
    count = 0
    with Broker(tmp_path / "var/lib/penstock", shards=1) as broker:
        page = Page(broker, tmp_path)
        for deed, block in STEPS.findall(DOCS.read_text()):
            if deed:
                getattr(page, deed)()
            for command, shown in commands(block):
                assert_shown(command, shown, page.perform(command))
                count += 1

    assert count >= 15


def not_run(page: str) -> list[str]:
    """Return the commands that the page names and that no block of it runs."""
    ran = [command for _, block in STEPS.findall(page) for command, _ in commands(block)]
    rest = STEPS.sub("", page)
    fenced = [line for block in FENCED.findall(rest) for line in block.splitlines() if COMMAND.match(line)]
    named = [found for found in INLINE.findall(FENCED.sub("", rest)) if COMMAND.match(found)]
    return fenced + [name for name in named if not any(VERBS.findall(name)[0] in each for each in ran)]


def test_every_command_of_the_page_is_run() -> None:
    assert not_run(DOCS.read_text()) == []


def test_a_command_that_is_not_run_is_noticed() -> None:
    page = (
        "```console\n$ penstock log verify DIR\n```\n`penstock log repair DIR`, `penstock log verify --output json`\n"
    )

    assert not_run(page) == ["penstock log repair DIR"]
    assert not_run(page + "```sh\n$ cp -a a b\n```\n") == ["$ cp -a a b", "penstock log repair DIR"]


def test_a_line_that_was_not_printed_is_noticed() -> None:
    with pytest.raises(AssertionError):
        assert_shown("penstock get", ["nothing is there"], "something is there\n")
    with pytest.raises(AssertionError):
        assert_shown("penstock get", ["…", "nothing is there"], "something is there\n")
    with pytest.raises(AssertionError):
        assert_shown("penstock get", [], "something is there\n")
    assert_shown("penstock get", ["12 of 1,000"], "7 of 31\n")
