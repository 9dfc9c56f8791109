"""Structured logs: coloured lines for a person at a terminal, one JSON object a line for everything else. Logs go to
stderr, because stdout belongs to what the command was asked to print."""

import logging
import sys
from typing import Literal, cast

import structlog

LogFormat = Literal["auto", "console", "json"]
LEVELS = ("debug", "info", "warning", "error")


def configure(level: str, log_format: LogFormat) -> None:
    """Sets level and shape once, before the first line."""
    is_console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if is_console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    shape: list[structlog.typing.Processor] = [] if is_console else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *shape,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def logger(room: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines say which room speaks."""
    return cast(structlog.typing.FilteringBoundLogger, structlog.get_logger(room=room))
