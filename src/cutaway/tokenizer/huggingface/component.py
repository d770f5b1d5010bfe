"""One object of a ``tokenizer.json``: reading its fields, each with the kind that it must have.

In: parsed JSON and the place in the file. Out: values, or an error that names the place. A component of a type that
isn't supported, or with an option that isn't, is an error, too: left out, it would change ids without a word.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from cutaway.errors import ModelFileError

_NAMES: Mapping[Any, str] = {bool: "true or false", int: "an integer", str: "text", list: "a list", dict: "an object"}
_SHOWN = 80  # characters of a value in a message


class Component:
    """An object with a ``type``, and where it stands in the file.

    Raises:
        ModelFileError: the value is no object.
    """

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            raise _error(place, value, "an object")
        self.fields = value
        self.place = place

    @property
    def type(self) -> str:
        return self.text("type")

    def text(self, name: str, default: str | None = None) -> str:
        """A field's text; where it is missing or null, the default.

        Raises:
            ModelFileError: it is of another kind, or missing without a default. So do the methods below.
        """
        value: str = self._get(name, str, default)
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
        return None if value is None else Component(value, f"{self.place}.{name}")

    def children(self, name: str) -> list["Component"]:
        """The components of a list within this one."""
        return [Component(each, f"{self.place}.{name}[{i}]") for i, each in enumerate(self.items(name))]

    def refuse(self, what: str) -> NoReturn:
        """Raise the error that something here isn't supported."""
        raise ModelFileError(f"{self.place} {what}, which is not supported. Use another file of this model, as a GGUF.")

    def refuse_type(self, known: str) -> NoReturn:
        """Raise the error that this type isn't supported."""
        raise ModelFileError(
            f"{self.place} is of type {self.type!r}, which is not supported; supported are {known}. Use another file "
            "of this model, as a GGUF."
        )

    def refuse_options(self, **harmless: Any) -> None:
        """Refuse options that are set to anything but null, nothing, or a harmless value.

        Raises:
            ModelFileError: it names the option.
        """
        for name, value in harmless.items():
            if self.fields.get(name) not in (None, "", value):
                self.refuse(f"has {name} {self.fields[name]!r}")


def _error(place: str, value: Any, wanted: str) -> ModelFileError:
    shown = ascii(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return ModelFileError(f"{place} of tokenizer.json is {shown}; it must be {wanted}. Fetch the model again.")
