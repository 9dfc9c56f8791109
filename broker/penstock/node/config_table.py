"""Prints the table of settings for docs/configuration.md from the model itself.

A test compares the page with the output of `python -m penstock.node.config_table`.
"""

import sys
from pathlib import Path

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from penstock.node.config import ENVIRONMENT_PREFIX, Settings

_CLUSTER = ("cluster", *(f"cluster_{name}" for name in ("broker", "brokers", "coordinator", "peers", "secret_file")))
FLAGS = frozenset({"data_dir", "grpc", "amqp", "amqp_ws", "http", "metrics", "log_level", "log_format", *_CLUSTER})


def table(model: type[BaseModel] = Settings) -> str:
    """Markdown, one row a setting, in the model's order."""
    rows = [
        "| key in the file | variable | flag of `serve` | default | description |",
        "|---|---|---|---|---|",
    ]
    rows += [_row(key, info) for key, info in model.model_fields.items()]
    return "\n".join(rows) + "\n"


def _row(key: str, info: FieldInfo) -> str:
    flag = f"`--{key.replace('_', '-')}`" if key in FLAGS else ""
    cells = (
        f"`{key}`",
        f"`{ENVIRONMENT_PREFIX}{key.upper()}`",
        flag,
        "" if info.default is None else f"`{_shown(info.default)}`",
        f"{info.description}{_bounds(info)}",
    )
    return f"| {' | '.join(cells)} |"


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return f"./{value}" if isinstance(value, Path) else str(value)


def _bounds(info: FieldInfo) -> str:
    low = next((item.ge for item in info.metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in info.metadata if hasattr(item, "le")), None)
    return "" if low is None or high is None else f" From {low} to {high}."


if __name__ == "__main__":
    sys.stdout.write(table())
