"""Structured logs on one stream, stderr: coloured lines on a terminal, one JSON object a line everywhere else.

A line has `timestamp`, `level`, `logger` and `event`, then fields of its own. Lines of libraries and Python's
warnings have the same shape, and each is one write. In a broker, `kit.log_stream` does the writing.
"""

import logging
import os
import sys
from typing import Literal, cast

# structlog imports Rich where it is installed: 4.5 MB in each broker, for tracebacks that are not used here.
_rich = sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
import structlog  # noqa: E402

if _rich is None:
    del sys.modules["rich"]

LogFormat = Literal["auto", "console", "json"]
LEVELS = ("debug", "info", "warning", "error")
_FIRST = ("timestamp", "level", "logger", "event")
_NAME = "logger_name"  # structlog's own functions have a parameter `logger`


def configure(level: str, log_format: LogFormat) -> None:
    """Set level and shape of all later lines."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _order_fields,
    ]
    renderers: list[structlog.typing.Processor] = (
        [_escape_controls, _console_renderer()]
        if is_console(log_format)
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False, default=str)]
    )
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    _configure_libraries(level, shared, renderers)


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger whose lines have this name in the field `logger`."""
    return cast(structlog.typing.FilteringBoundLogger, structlog.get_logger(**{_NAME: name}))


def is_console(log_format: LogFormat) -> bool:
    """Return whether lines are written for people, not as JSON."""
    return log_format == "console" or (log_format == "auto" and is_terminal())


def is_terminal() -> bool:
    """Return whether a person reads the log as it is written."""
    return sys.stderr.isatty()


def _console_renderer() -> structlog.dev.ConsoleRenderer:
    """Return a renderer for people. Tracebacks have no values of variables: some are passwords."""
    colors = is_terminal() and "NO_COLOR" not in os.environ
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _order_fields(_logger: object, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Put the fields that each line has first, under their names."""
    fields["logger"] = fields.pop(_NAME, None) or fields.pop("logger", "python")
    ordered = {name: fields.pop(name) for name in _FIRST if name in fields}
    return {**ordered, **fields}


def _escape_controls(_logger: object, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters in text: clients choose names, and those must not command the terminal.

    An event keeps its line ends: Python's warnings have several lines.
    """
    return {name: _escaped(value, "\n" if name == "event" else "") for name, value in fields.items()}


def _escaped(value: object, keeps: str) -> object:
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(
        each if each.isprintable() or each in keeps else each.encode("unicode_escape").decode("ascii") for each in value
    )


def _configure_libraries(
    level: str, shared: list[structlog.typing.Processor], renderers: list[structlog.typing.Processor]
) -> None:
    """Write what libraries log by the standard module, from warnings up, and Python's warnings in the same shape."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, getattr(logging, level.upper())))
    logging.captureWarnings(True)
