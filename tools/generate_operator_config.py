"""Writes the fields of a Cluster's `spec.config` from the broker's settings, for the operator and for the chart.

`generate_operator_config.py`: a test compares both files with the settings. A setting of the broker becomes a field of
the same type and bounds, a secret one becomes a reference to a Secret, and a setting of the operator's own a field that
is refused.
"""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import SecretStr
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from penstock.node.config import Settings

ROOT = Path(__file__).resolve().parents[1]
MODULE = ROOT / "operator" / "penstock_operator" / "api" / "broker_config.py"
CHART = ROOT / "charts" / "penstock" / "values.schema.json"
READ_AGAIN = " Read again when the file changes."
HEAD = '''"""The broker's settings as fields of a Cluster's `spec.config`.

Absent fields leave the broker's defaults. A test compares this module with the broker's settings.
"""
# Generated from penstock/node/config.py by `make crds`; edit that file instead.

from typing import Final, Literal

from pydantic import Field

from penstock_operator.api.fields import Model, SecretValue, Setting

'''

_TLS: Final = "it belongs to TLS; set spec.tls instead"
_CLIENTS: Final = "it belongs to TLS; set spec.tls.clientCertificates instead"
_NOT_SERVED: Final = "the broker does not serve it yet; leave it out"
_ADMINISTRATOR: Final = "the operator makes the administrator; apply a User for others"
_ONE_BROKER: Final = "the operator runs one broker for each Cluster; leave it out"
# By the broker's key. A key that begins with `default_user` or `default_password` is the administrator's.
OWNED: Final = {
    "data_dir": "it is on the volume; set spec.storage instead",
    "grpc": "the port is the one of the Service; set spec.service instead",
    "metrics": "probes and the Service use the port; leave it out",
    "amqp": "the port is the one of the Service; set spec.service.amqp instead",
    "amqp_socket": "the container has no other processes; leave it out",
    "amqp_ws": "the Service has no port for it; leave it out",
    "amqp_ws_origins": "the Service has no port for it; leave it out",
    "http": _NOT_SERVED,
    "tls_certificate": _TLS,
    "tls_key": _TLS,
    "tls_client_ca": _CLIENTS,
    "tls_client_auth": _CLIENTS,
    "tls_client_user": _CLIENTS,
    "tls_version_min": "it belongs to TLS; set spec.tls.versionMin instead",
    "metrics_tls": "probes read health in plaintext; leave it out",
}


def module() -> str:
    """Return the module of the operator, formatted."""
    fields = Settings.model_fields
    hot = sorted(key for key, info in fields.items() if READ_AGAIN in (info.description or "") and not reason_of(key))
    secret = sorted(key for key, info in fields.items() if _type(info) is SecretStr and not reason_of(key))
    owned = {key: reason_of(key) for key in fields if reason_of(key)}
    source = HEAD + "\n".join(
        [
            f"HOT: Final = frozenset({hot!r})",
            '"""Settings that the broker reads again when the file changes."""',
            f"SECRET: Final = frozenset({secret!r})",
            '"""Settings that only a Secret has."""',
            f"OWNED: Final = {owned!r}",
            '"""Settings that the operator sets, with what to do instead."""',
            "",
            "",
            "class BrokerConfig(Model):",
            '    """Settings of the broker, with its defaults."""',
            "",
            *(_field(key, info) for key, info in fields.items()),
            "",
        ]
    )
    command = [sys.executable, "-m", "ruff", "--quiet", "format", "--stdin-filename", str(MODULE), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return done.stdout


def _field(key: str, info: FieldInfo) -> str:
    if reason_of(key):
        kind, description = ("bool" if _type(info) is bool else "Setting"), f"Refused: {reason_of(key)}."
        return f"    {key}: {kind} | None = Field(None, description={_written(description)})"
    description = (info.description or "").replace(READ_AGAIN, " No restart needed.")
    bounds = "".join(f"{word}={value!r}, " for word, value in _bounds(info))
    return f"    {key}: {_written_type(info)} | None = Field(None, {bounds}description={_written(description)})"


def _written(description: str) -> str:
    """Return the description as Python's literals, in lines that fit.

    Backquotes become quotes: YAML and `kubectl explain` show them as they are.
    """
    lines = textwrap.wrap(description.replace("`", "'"), 95, drop_whitespace=False)
    return " ".join(json.dumps(line, ensure_ascii=False) for line in lines)


def _bounds(info: FieldInfo) -> list[tuple[str, Any]]:
    found = {type(each): each for each in info.metadata}
    low, high = found.get(Ge), found.get(Le)
    return [*([("ge", low.ge)] if low else []), *([("le", high.le)] if high else [])]


def _type(info: FieldInfo) -> Any:
    """Return a field's type without the None."""
    return next(
        (
            each
            for each in get_args(info.annotation)
            if get_origin(info.annotation) is not Literal and each is not NoneType
        ),
        info.annotation,
    )


def _written_type(info: FieldInfo) -> str:
    kind = _type(info)
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    if kind is SecretStr:
        return "SecretValue"
    return kind.__name__ if kind in {bool, int, float} else "Setting"


def chart_schema(text: str) -> str:
    """Return the chart's schema with the fields of `config`."""
    rows = [
        f"        {json.dumps(to_camel(key))}: {json.dumps(_chart_field(info))}"
        for key, info in Settings.model_fields.items()
        if not reason_of(key)
    ]
    pattern = re.compile(r'(    "config": \{\n.*?"properties": \{\n)(.*?)(\n      \}\n    \})', re.DOTALL)
    return pattern.sub(lambda found: found[1] + ",\n".join(rows) + found[3], text, count=1)


def _chart_field(info: FieldInfo) -> dict[str, Any]:
    kind = _type(info)
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if kind is SecretStr:
        return {"$ref": "#/definitions/secret"}
    return {"type": {bool: "boolean", int: "integer", float: "number"}.get(kind, "string")}


def reason_of(key: str) -> str | None:
    """Return why a manifest cannot set a key, and what to do; None for a key that it can set."""
    if key.startswith("cluster"):
        return _ONE_BROKER
    return _ADMINISTRATOR if key.startswith(("default_user", "default_password")) else OWNED.get(key)


if __name__ == "__main__":
    MODULE.write_text(module())
    CHART.write_text(chart_schema(CHART.read_text()))
