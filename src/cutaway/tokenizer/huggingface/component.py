"""One object of a ``tokenizer.json``: reading its fields, each with the kind that it must have.

In: parsed JSON and the place in the file. Out: values, or an error that names the place. A component of a type that
isn't supported, or with an option that isn't, is an error, too: left out, it would change ids without a word.
"""

import itertools
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from cutaway.errors import ModelFileError

_NAMES: Mapping[Any, str] = {bool: "true or false", int: "an integer", str: "text", list: "a list", dict: "an object"}
_SHOWN = 80  # characters of a value in a message
_MESSAGE = 300  # of what a message says of a component
DEEPEST: Final = 16
"""Components within components; real files have three of them."""
LONGEST_CONTENT: Final = 64
"""Characters that a normalizer or decoder may put in place of others, or before them."""


class Component:
    """An object with a ``type``, and where it stands in the file: within how many others, too.

    Raises:
        ModelFileError: the value is no object, or within too many.
    """

    def __init__(self, value: Any, place: str, depth: int = 0) -> None:
        if not isinstance(value, Mapping):
            raise _error(place, value, "an object")
        self.fields = value
        self.place = place
        self._depth = depth
        if depth > DEEPEST:
            self.refuse(f"is within {depth} others; at most {DEEPEST} are read")

    @property
    def type(self) -> str:
        """The field that says which kind of component it is."""
        return self.text("type")

    def text(self, name: str, default: str | None = None) -> str:
        """A field's text; where it is missing or null, the default.

        Raises:
            ModelFileError: it is of another kind, or missing without a default. So do the methods below.
        """
        value: str = self._get(name, str, default)
        if not is_legal(value):
            raise _error(f"{self.place}.{name}", value, "text without halves of characters (lone surrogates)")
        return value

    def content(self, name: str) -> str:
        """A text that is put in place of others, or before them: a short one, so that no text grows out of bounds."""
        value = self.text(name)
        if len(value) > LONGEST_CONTENT:
            self.refuse(f"has a {name} of {len(value)} characters; it must have at most {LONGEST_CONTENT}")
        return value

    def character(self, name: str) -> str:
        """A text of one character."""
        value = self.text(name)
        if len(value) != 1:
            raise _error(f"{self.place}.{name}", value, "one character")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        """A field that is true or false."""
        value: bool = self._get(name, bool, default)
        return value

    def integer(self, name: str) -> int:
        """A field that is an integer."""
        value: int = self._get(name, int, None)
        return value

    def items(self, name: str) -> list[Any]:
        """A field that is a list."""
        value: list[Any] = self._get(name, list, None)
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """A field that is an object."""
        value: dict[str, Any] = self._get(name, dict, None)
        return value

    def _get(self, name: str, kind: Any, default: Any) -> Any:
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if type(value) is not kind:
            raise _error(f"{self.place}.{name}", value, _NAMES[kind])
        return value

    def child(self, name: str) -> "Component | None":
        """A component within this one, or None."""
        value = self.fields.get(name)
        return None if value is None else Component(value, f"{self.place}.{name}", self._depth + 1)

    def children(self, name: str) -> list["Component"]:
        """The components of a list within this one."""
        places = (f"{self.place}.{name}[{i}]" for i in itertools.count())
        return [Component(each, place, self._depth + 1) for each, place in zip(self.items(name), places, strict=False)]

    def refuse(self, what: str) -> NoReturn:
        """Raise the error that something here isn't supported."""
        what = what if len(what) <= _MESSAGE else what[:_MESSAGE] + "…"
        raise ModelFileError(f"{self.place} {what}, which is not supported. Use another file of this model, as a GGUF.")

    def refuse_type(self, known: str) -> NoReturn:
        """Raise the error that this type isn't supported."""
        raise ModelFileError(
            f"{self.place} is of type {self.type[:_SHOWN]!r}, which is not supported; supported are {known}. Use "
            "another file of this model, as a GGUF."
        )

    def refuse_options(self, **harmless: Any) -> None:
        """Refuse options that are set to anything but null, nothing, or a harmless value.

        Raises:
            ModelFileError: it names the option.
        """
        for name, value in harmless.items():
            if self.fields.get(name) not in (None, "", value):
                self.refuse(f"has {name} {self.fields[name]!r}")


def is_legal(text: str) -> bool:
    """Whether it can be encoded: JSON can spell half of a surrogate pair, which is no character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _error(place: str, value: Any, wanted: str) -> ModelFileError:
    shown = ascii(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return ModelFileError(f"{place} of tokenizer.json is {shown}; it must be {wanted}. Fetch the model again.")
