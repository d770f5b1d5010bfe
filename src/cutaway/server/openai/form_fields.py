"""The fields of a body that say which form the answer must have: OpenAI's ``response_format``, and vLLM's.

In: JSON. Out: what the engine is asked for, and by which field, so that errors name it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from pydantic import Field

from cutaway.errors import InvalidRequestError
from cutaway.sampling.params_checks import shown
from cutaway.sampling.structured_outputs import FIELD
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.fields import RequestBody

GUIDED: Final = "guided_"
OLDER: Final = ("json", "regex", "choice", "grammar")
"""The kinds that vLLM had as fields of their own, with ``guided_`` before the name."""


class AskedForm(NamedTuple):
    """A form by the engine's name, and the field by which the client asked for it."""

    given: Mapping[str, Any] | None  # None: any text
    ours: str = ""
    theirs: str = ""

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Within it, errors that speak of the form name the client's field: of those that speak of the grammar that
        was made of it, or of an answer, all of it.
        """
        try:
            yield
        except InvalidRequestError as error:
            field = error.field or ""
            if not self.ours or not field.startswith(FIELD):
                raise
            spoken = self.ours if field.startswith(self.ours) else field
            renamed = self.theirs + field.removeprefix(spoken)
            raise InvalidRequestError(str(error).replace(spoken, self.theirs), renamed) from None


class FormFields(RequestBody):
    """At most one of these asks for a form."""

    response_format: dict[str, Any] | None = Field(
        None,
        description='{"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", "json_schema": {"name": …, '
        '"schema": …}}. A schema is always enforced, whatever strict says.',
    )
    structured_outputs: dict[str, Any] | None = Field(
        None, description="One of json, regex, choice, grammar (Lark's notation) and json_object, as vLLM's."
    )
    guided_json: Any = Field(None, description="structured_outputs.json, by its older name.")
    guided_regex: Any = Field(None, description="structured_outputs.regex, by its older name.")
    guided_choice: Any = Field(None, description="structured_outputs.choice, by its older name.")
    guided_grammar: Any = Field(None, description="structured_outputs.grammar, by its older name.")

    def form(self) -> AskedForm:
        """The form that is asked for; ApiError 400 where there are several, or what can't be understood."""
        found: dict[str, AskedForm] = {}
        if self.response_format is not None:
            asked = read_response_format(self.response_format)
            if asked.given is not None:
                found["response_format"] = asked
        if self.structured_outputs is not None:
            found[FIELD] = AskedForm(self.structured_outputs, FIELD, FIELD)
        for kind in OLDER:
            name = GUIDED + kind
            value = getattr(self, name)
            if value is not None:
                found[name] = AskedForm({kind: value}, f"{FIELD}.{kind}", name)
        if len(found) > 1:
            raise _refusal(f"there are {' and '.join(found)}; an answer has one form. Leave one.", list(found)[1])
        return next(iter(found.values()), AskedForm(None))


def read_response_format(given: Mapping[str, Any]) -> AskedForm:
    """OpenAI's field. Source: its API reference, "Create chat completion", response_format."""
    name = "response_format"
    kind = given.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise _refusal(f"{name}.type is {shown(kind)}; it must be text, json_object or json_schema.", f"{name}.type")
    wanted = ("type", "json_schema") if kind == "json_schema" else ("type",)
    _check_names(given, wanted, name)
    if kind == "text":
        return AskedForm(None)
    if kind == "json_object":
        return AskedForm({"json_object": True}, f"{FIELD}.json_object", name)
    inner = f"{name}.json_schema"
    described = given.get("json_schema")
    if not isinstance(described, dict):
        raise _refusal(f"{inner} is {shown(described)}; it must be an object with name and schema.", inner)
    _check_names(described, ("name", "description", "strict", "schema"), inner)
    for key, kinds in (("name", str), ("description", str), ("strict", bool)):
        value = described.get(key)
        if value is not None and not isinstance(value, kinds):
            what = "a text" if kinds is str else "true or false"
            raise _refusal(f"{inner}.{key} is {shown(value)}; it must be {what}.", f"{inner}.{key}")
    schema = described.get("schema")
    if not isinstance(schema, dict):
        raise _refusal(f"{inner}.schema is {shown(schema)}; it must be a JSON schema, an object.", f"{inner}.schema")
    return AskedForm({"json": schema}, f"{FIELD}.json", f"{inner}.schema")


def _check_names(given: Mapping[str, Any], known: tuple[str, ...], path: str) -> None:
    for name in given:
        if name not in known:
            raise _refusal(
                f"{path} has {shown(name)}; with this type it has {' and '.join(known)}. Leave it out.",
                f"{path}.{name[:100]}",
            )


def _refusal(message: str, param: str) -> ApiError:
    return ApiError(400, message, param, "invalid_value")
