"""Checks of request parameters: each takes a field's value and gives it back in its plain form, or refuses it.

In: any Python value, as a caller or JSON has it. Out: plain ints, floats, bools, tuples and dicts, or an
InvalidRequestError that names the field, the value, its limits and a remedy. A bool is not a number here.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final, Protocol

from cutaway.errors import InvalidRequestError
from cutaway.errors import shown as shown

LARGEST_ID: Final = 2**31 - 1
"""Of any vocabulary: ids are int32."""
MOST_IDS: Final = 2**20
"""In a list: more than any vocabulary has. A ``range`` is a list, too, and may have more than there is memory for."""
MOST_DIGITS: Final = 1000
"""Of an integer that has no other limit; what is in effect is echoed, and Python writes no more than 4,300."""


def is_integer(value: object) -> bool:
    """Whether a value is an integer of Python or NumPy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a real number of Python or NumPy, and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


class Check(Protocol):
    """What a field's values must be."""

    @property
    def limits(self) -> str:
        """In words, after "it must be"."""

    def __call__(self, field: str, value: Any) -> Any:
        """The value in its plain form; InvalidRequestError where it is refused."""


def _refusal(field: str, value: object, check: Check, remedy: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field} is {shown(value)}; it must be {check.limits}. {remedy}", field)


@dataclass(frozen=True)
class Number:
    """A number from low to high, or above low if ``exclusive``."""

    low: float
    high: float
    remedy: str
    exclusive: bool = False

    @property
    def limits(self) -> str:
        if self.exclusive:
            return f"a number above {self.low:g} and at most {self.high:g}"
        return f"a number from {self.low:g} to {self.high:g}"

    def __call__(self, field: str, value: Any) -> float:
        # A NaN fails every comparison, and an integer too large for a float is compared before it is converted.
        if not is_number(value) or not self.low <= value <= self.high or (self.exclusive and value == self.low):
            raise _refusal(field, value, self, self.remedy)
        number = float(value)
        if self.exclusive and number == self.low:  # a fraction that is nearer to it than any other float
            raise _refusal(field, value, self, self.remedy)
        return number


@dataclass(frozen=True)
class Integer:
    """An integer of at least low, and at most high if there is one; None too if ``optional``."""

    low: int
    high: int | None
    remedy: str
    optional: bool = False

    @property
    def limits(self) -> str:
        return (
            f"an integer of at least {self.low}" if self.high is None else f"an integer from {self.low} to {self.high}"
        )

    def __call__(self, field: str, value: Any) -> int | None:
        if value is None and self.optional:
            return None
        if not is_integer(value) or value < self.low or (self.high is not None and value > self.high):
            raise _refusal(field, value, self, self.remedy)
        if int(value) >= 10**MOST_DIGITS:
            raise InvalidRequestError(
                f"{field} has more than {MOST_DIGITS} digits, the most that are read; it must be {self.limits}. "
                f"{self.remedy}",
                field,
            )
        return int(value)


@dataclass(frozen=True)
class Flag:
    """True or false."""

    remedy: str

    @property
    def limits(self) -> str:
        return "true or false"

    def __call__(self, field: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise _refusal(field, value, self, self.remedy)
        return value


def _refuse_many(field: str, ids: Collection[Any], check: Check, remedy: str) -> None:
    """Refuse more ids than any vocabulary has, before they are read."""
    if len(ids) > MOST_IDS:
        raise InvalidRequestError(
            f"{field} has more than {MOST_IDS} ids, the most that are read; it must be {check.limits}. {remedy}", field
        )


def _items(field: str, value: Any, check: Check, remedy: str) -> Collection[Any]:
    """The items of a list or of something like one."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Sequence | set | frozenset):
        raise _refusal(field, value, check, remedy)
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else value


@dataclass(frozen=True)
class Texts:
    """A list of at most ``most`` texts that are not empty, or one text if ``one``; None and [] are none.

    Out: a tuple without duplicates in the order given, or None.
    """

    most: int
    remedy: str
    one: bool = False

    @property
    def limits(self) -> str:
        return f"{'a text or ' if self.one else ''}a list of at most {self.most} texts, none of them empty"

    def __call__(self, field: str, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        given = [value] if self.one and isinstance(value, str) else _items(field, value, self, self.remedy)
        texts = tuple(dict.fromkeys(given)) if all(isinstance(text, str) for text in given) else ()
        if len(texts) > self.most:
            raise InvalidRequestError(f"{field} has {len(texts)} texts; it must be {self.limits}. {self.remedy}", field)
        if "" in texts or (given and not texts):
            raise _refusal(field, value, self, self.remedy)
        if texts:
            from cutaway.tokenizer.legal_text import check_legal  # here, since it loads the whole tokenizer

            for text in texts:
                check_legal(text, field)
        return texts or None


@dataclass(frozen=True)
class Ids:
    """A list of token ids; None is none, and so is [] if ``may_be_empty``.

    Out: a tuple without duplicates in the order given, or None. Their upper limit is the model's vocabulary, which is
    not known here.
    """

    remedy: str
    may_be_empty: bool = True

    @property
    def limits(self) -> str:
        few = "" if self.may_be_empty else "one or more "
        return f"a list of {few}token ids, integers from 0 to the vocabulary's last"

    def __call__(self, field: str, value: Any) -> tuple[int, ...] | None:
        if value is None:
            return None
        given = _items(field, value, self, self.remedy)
        _refuse_many(field, given, self, self.remedy)
        ids = []
        for each in given:
            if not is_integer(each) or not 0 <= each <= LARGEST_ID:
                raise InvalidRequestError(f"{field} has {shown(each)}; it must be {self.limits}. {self.remedy}", field)
            ids.append(int(each))
        if not ids and not self.may_be_empty:
            raise _refusal(field, value, self, self.remedy)
        return tuple(dict.fromkeys(ids)) or None


@dataclass(frozen=True)
class Biases:
    """A mapping of token ids, or their decimal digits as JSON has them, to numbers from low to high; None is none.

    Out: a dict in ascending order of ids, or None.
    """

    low: float
    high: float
    remedy: str

    @property
    def limits(self) -> str:
        return (
            f"a mapping of token ids, integers from 0 to the vocabulary's last or their digits, to numbers from "
            f"{self.low:g} to {self.high:g}"
        )

    def __call__(self, field: str, value: Any) -> dict[int, float] | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _refusal(field, value, self, self.remedy)
        _refuse_many(field, value, self, self.remedy)
        biases: dict[int, float] = {}
        for key, bias in value.items():
            token_id = _token_id(key)
            if token_id is None or not is_number(bias) or not self.low <= bias <= self.high:
                raise InvalidRequestError(
                    f"{field} has {shown(key)}: {shown(bias)}; it must be {self.limits}. {self.remedy}", field
                )
            if token_id in biases:
                raise InvalidRequestError(f"{field} has id {token_id} twice; give each id one bias.", field)
            biases[token_id] = float(bias)
        return dict(sorted(biases.items())) or None


def _token_id(key: object) -> int | None:
    """An id, or the decimal digits of one, as an int; None where it is neither."""
    number: Any = int(key) if isinstance(key, str) and re.fullmatch(r"[0-9]{1,10}", key) else key
    return int(number) if is_integer(number) and 0 <= number <= LARGEST_ID else None


def refuse_outside(field: str, ids: Iterable[int], vocab_size: int) -> None:
    """Refuse ids that a vocabulary doesn't have, naming the first 20."""
    outside = [each for each in ids if not 0 <= each < vocab_size]
    if outside:
        listed = ", ".join(str(each) for each in outside[:20]) + (", …" if len(outside) > 20 else "")
        raise InvalidRequestError(
            f"{field} has {'id' if len(outside) == 1 else 'ids'} {listed}; this model's ids run from 0 to "
            f"{vocab_size - 1}. Use the ids of its own tokenizer.",
            field,
        )
