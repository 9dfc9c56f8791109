"""The broker as a process: logs, event loop, what it prints when it is ready, and its exit code. What it starts is the
launcher's business, which is imported late: reading settings must not load the native module."""

import asyncio
import gc
import sys
from collections.abc import Callable

from penstock.kit.logging import configure
from penstock.kit.memory import return_large_blocks, trim, trim_now_and_then
from penstock.kit.tasks import log_bugs_of_callbacks, spawn
from penstock.kit.threads import use_threads
from penstock.model.errors import FaultError, RefusedError
from penstock.node.config import Settings
from penstock.node.files import raise_files_max


class StartError(Exception):
    """The broker cannot start; the text says why and what to do."""


def run(settings: Settings, load: Callable[[], Settings] | None = None) -> None:
    """Runs a broker until a signal stops it; `load` reads its settings again, where they may change. Exits with 1,
    after one line on stderr, when it cannot start or did not stop cleanly."""
    import uvloop

    return_large_blocks()
    raise_files_max()
    configure(settings.log_level, settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            was_clean = runner.run(_serve(settings, load))
    except (StartError, FaultError, RefusedError) as error:
        sys.stderr.write(f"penstock: {error}\n")
        raise SystemExit(1) from error
    if not was_clean:
        raise SystemExit(1)


async def _serve(settings: Settings, load: Callable[[], Settings] | None) -> bool:
    from penstock.node.greeting import greeting
    from penstock.node.launcher import Broker
    from penstock.node.signals import stop_asked

    log_bugs_of_callbacks(asyncio.get_running_loop())
    use_threads(asyncio.get_running_loop())
    gc.disable()  # what a start makes it keeps: with many queues, walking it again and again takes half as long again
    asked = stop_asked()
    async with Broker(settings, load) as broker:
        sys.stdout.write(
            greeting(
                settings,
                broker.state,
                has_default_user=broker.has_default_user(),
                password_file=broker.password_file,
            )
        )
        sys.stdout.flush()
        _settle_memory()
        trimming = spawn(trim_now_and_then(), name="memory")
        await asked.wait()
        trimming.cancel()
        await broker.stop()
    return broker.was_clean


def _settle_memory() -> None:
    """What lives now lives until the end: the collector need not walk it again, and what the start left over goes."""
    gc.collect()
    gc.freeze()
    gc.enable()
    trim()
