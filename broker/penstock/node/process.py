"""The broker as a process: logs, event loop, the greeting when it is ready, and its exit code.

The launcher is imported late, because reading settings must not load the native module.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.kit.log_stream import LogStream, write_in_background
from penstock.kit.logging import configure, is_console, is_terminal, logger
from penstock.kit.memory import return_large_blocks, trim, trim_now_and_then
from penstock.kit.tasks import log_bugs_of_callbacks, spawn
from penstock.kit.threads import use_threads
from penstock.model.errors import FaultError, RefusedError
from penstock.node.config import Settings, StartError
from penstock.node.files import open_standard_files, raise_files_max

if TYPE_CHECKING:
    from penstock.node.launcher import Broker

_log = logger("node")


def run(settings: Settings, load: Callable[[], Settings] | None = None) -> None:
    """Run a broker until a signal stops it.

    `load` reads its settings again, where they may change. Exit with 1, after one line on stderr, when it cannot start,
    stopped by itself or did not stop cleanly.
    """
    import uvloop

    return_large_blocks()
    open_standard_files()
    raise_files_max()
    log = write_in_background(_report_dropped)
    configure(settings.log_level, settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            was_clean = runner.run(_serve(settings, load, log))
    except (StartError, FaultError, RefusedError) as error:
        if is_console(settings.log_format):
            sys.stderr.write(f"penstock: {error}\n")
        else:
            _log.error("start failed", reason=str(error))
        raise SystemExit(1) from error
    if not was_clean:
        raise SystemExit(1)


async def _serve(settings: Settings, load: Callable[[], Settings] | None, log: LogStream) -> bool:
    from penstock.node.launcher import Broker
    from penstock.node.signals import stop_asked

    log_bugs_of_callbacks(asyncio.get_running_loop())
    use_threads(asyncio.get_running_loop())
    gc.disable()  # what a start makes it keeps: with many queues, walking it again and again takes half as long again
    asked = stop_asked(log.drain)
    async with Broker(settings, load, lambda: log.dropped, asked) as broker:
        _greet(settings, broker)
        _settle_memory()
        trimming = spawn(trim_now_and_then(), name="memory")
        await asked.wait()
        trimming.cancel()
        await broker.stop()
    return broker.was_clean and not broker.has_failed


def _report_dropped(count: int) -> None:
    _log.warning("lines of the log were dropped", count=count)


def _greet(settings: Settings, broker: "Broker") -> None:
    """Print addresses and a first command for a person at a terminal; others find them in the log."""
    from penstock.node.greeting import greeting

    if is_console(settings.log_format) and is_terminal():
        has_default_user = broker.has_default_user()
        sys.stderr.write(
            greeting(settings, broker.state, has_default_user=has_default_user, password_file=broker.password_file)
        )
    elif broker.password_file is not None:
        _log.info("administrator created", user="admin", password_file=str(broker.password_file))


def _settle_memory() -> None:
    """Return what the start left over, and exempt from collection what lives until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()
    trim()
