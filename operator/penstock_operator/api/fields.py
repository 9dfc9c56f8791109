"""Parts of the models of all kinds: bounded strings, immutable fields, rules that the API server checks.

Every string and list has a bound, because the API server refuses rules on unbounded ones as too costly.
"""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

VALIDATIONS: Final = "x-kubernetes-validations"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
NAME_LENGTH_MAX: Final = 255
TEXT_LENGTH_MAX: Final = 1_024


class Model(BaseModel):
    """A part of a manifest: camelCase in YAML, unknown fields refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    def manifest(self) -> dict[str, Any]:
        """Return the part as in YAML, without unset fields."""
        return self.model_dump(by_alias=True, exclude_none=True)


def rule(expression: str, message: str) -> dict[str, str]:
    """Return a CEL rule; the message says what to write."""
    return {"rule": expression, "message": message}


def rules(*each: dict[str, str]) -> dict[str, Any]:
    """Return rules for `json_schema_extra` of a model or a field."""
    return {VALIDATIONS: list(each)}


def immutable(what: str, **options: Any) -> Any:
    """Return a field that cannot change. It must be required or have a default: absent fields are not checked."""
    reason = rule("self == oldSelf", f"{what} cannot be changed; delete the object and apply it again")
    extra = options.pop("extra_rules", [])
    field: FieldInfo = Field(json_schema_extra=rules(reason, *extra), **options)
    return field


def part(model: type[Model], **options: Any) -> Any:
    """Return an optional part with its own defaults."""
    field: FieldInfo = Field(default_factory=lambda: model.model_validate({}), **options)
    return field


def known(schemas: dict[str, dict[str, Any]], says: str, *, is_required: bool = False) -> Any:
    """Return a field of `Values` whose known keys the API server checks; it keeps others for the broker to judge."""
    default: dict[str, Any] = {} if is_required else {"default_factory": dict}
    extra: dict[str, Any] = {PRESERVE: True, "properties": schemas}
    field: FieldInfo = Field(**default, description=says, json_schema_extra=extra)
    return field


Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX)]
Pattern = Annotated[str, Field(max_length=TEXT_LENGTH_MAX)]
# Name of an object in Kubernetes.
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Namespace = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Label = Annotated[str, Field(max_length=317)]
Quantity = Annotated[
    str,
    Field(
        max_length=32,
        pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
    ),
]
# Values of arguments: a string or a whole number, which Kubernetes can compare in rules.
Scalar = Annotated[int | str, Field(json_schema_extra={"x-kubernetes-int-or-string": True})]
Arguments = Annotated[dict[str, Scalar], Field(max_length=32)]
# Arguments of what keeps its name when they change. Kubernetes' rules cannot read values of several types.
Values = Annotated[
    dict[str, bool | int | float | str | list[int | str]], Field(max_length=64, json_schema_extra={PRESERVE: True})
]
Labels = Annotated[dict[str, Label], Field(max_length=64)]
# A setting of the broker that is text. Control characters have no place in its file.
Setting = Annotated[str, Field(max_length=TEXT_LENGTH_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")]
# Parts of Kubernetes' own types, passed on unchanged: the API server checks them where they are used.
Passed = Annotated[dict[str, Any], Field(json_schema_extra={PRESERVE: True})]


class SecretName(Model):
    """A Secret in the object's namespace."""

    name: ObjectName


class SecretKey(Model):
    """A key of a Secret in the object's namespace."""

    name: ObjectName
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]


class SecretValue(Model):
    """A value that is in a Secret. A change takes effect when the broker restarts."""

    secret_key_ref: SecretKey
