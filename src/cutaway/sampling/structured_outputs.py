"""The form that an answer must have, as a request asks for it: one of five kinds. The names are those of vLLM's
``StructuredOutputsParams``.

In: keyword arguments or a mapping. Out: a frozen record whose types have been checked, or an InvalidRequestError.
Whether the form itself can be enforced is found when it is compiled (``grammar``).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from cutaway.errors import InvalidRequestError
from cutaway.sampling.params_checks import shown

FIELD: Final = "structured_outputs"
KINDS: Final = "json, regex, choice, grammar, json_object"
MOST_TEXT: Final = 1 << 17
"""Characters of a schema, an expression, a grammar, or of all choices together."""
MOST_CHOICES: Final = 4096


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsParams:
    """Exactly one of these.

    json: a JSON schema, as a mapping or as text; kept as text. regex: an expression that the whole answer matches.
    choice: a list of texts, one of which is the answer. grammar: a grammar in Lark's notation. json_object: True, for
    any JSON object.
    """

    json: Any = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def __post_init__(self) -> None:
        if self.json_object is False:
            object.__setattr__(self, "json_object", None)
        given = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "nothing"
            raise InvalidRequestError(f"{FIELD} has {what}; it must have exactly one of {KINDS}.", FIELD)
        (kind,) = given
        check = {"json": _schema_text, "choice": _choices, "json_object": _true}.get(kind, _text)
        object.__setattr__(self, kind, check(f"{FIELD}.{kind}", getattr(self, kind)))

    @property
    def kind(self) -> str:
        """The name of the one that is given."""
        return next(each.name for each in fields(self) if getattr(self, each.name) is not None)


def _refusal(field: str, value: object, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field} is {shown(value)}; it must be {what}.", field)


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _refusal(field, value, "a text that is not empty")
    _check_size(field, len(value))
    _check_legal(field, value)
    return value


def _check_legal(field: str, text: str) -> None:
    from cutaway.tokenizer.legal_text import check_legal  # here, since it loads the whole tokenizer

    check_legal(text, field)


def _check_size(field: str, size: int) -> None:
    if size > MOST_TEXT:
        raise InvalidRequestError(
            f"{field} has {size} characters; it must have {MOST_TEXT} at most. Shorten it.", field
        )


def _schema_text(field: str, value: Any) -> str:
    """The schema as JSON text, its keys in their order."""
    wanted = "a JSON schema: an object, as a mapping or as JSON text"
    try:
        if isinstance(value, str):
            _check_size(field, len(value))
            value = json.loads(value, parse_constant=_no_constant)
        if not isinstance(value, Mapping):
            raise _refusal(field, value, wanted)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except InvalidRequestError:
        raise
    except RecursionError:
        raise InvalidRequestError(f"{field} is nested too deeply. Flatten it.", field) from None
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{field} is no JSON ({error}); it must be {wanted}.", field) from None
    _check_size(field, len(text))
    _check_legal(field, text)
    return text


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _choices(field: str, value: Any) -> tuple[str, ...]:
    wanted = f"a list of 1 to {MOST_CHOICES} texts, none of them empty"
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise _refusal(field, value, wanted)
    if not 1 <= len(value) <= MOST_CHOICES or not all(isinstance(each, str) and each for each in value):
        raise _refusal(field, value, wanted)
    _check_size(field, sum(map(len, value)))
    for each in value:
        _check_legal(field, each)
    return tuple(dict.fromkeys(value))


def _true(field: str, value: Any) -> bool:
    if value is not True:
        raise _refusal(field, value, "true, or left out")
    return True


@dataclass(frozen=True)
class Form:
    """The check of the parameter: a ``StructuredOutputsParams``, or a mapping of its fields; None is none."""

    remedy: str

    @property
    def limits(self) -> str:
        return f"a StructuredOutputsParams, or a mapping with one of {KINDS}"

    def __call__(self, field: str, value: Any) -> StructuredOutputsParams | None:
        if value is None or isinstance(value, StructuredOutputsParams):
            return value
        if not isinstance(value, Mapping):
            raise InvalidRequestError(f"{field} is {shown(value)}; it must be {self.limits}. {self.remedy}", field)
        return StructuredOutputsParams(**_known(value))


def _known(given: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields that there are; others are refused by name, unless they ask for nothing."""
    names = {each.name for each in fields(StructuredOutputsParams)}
    for name, value in given.items():
        if name not in names and value not in (None, False):
            raise InvalidRequestError(
                f"{FIELD} has {shown(name)}: {shown(value)}; it must have exactly one of {KINDS}. Leave it out.",
                f"{FIELD}.{name}" if isinstance(name, str) else FIELD,
            )
    return {name: value for name, value in given.items() if name in names}
