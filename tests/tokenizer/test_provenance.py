"""Marked text behaves like the plain text, and no operation turns a marked character into a plain one."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cutaway.errors import ModelFileError
from cutaway.tokenizer.provenance import TEXT_METHODS, MarkedText, Marks, plain

CONTROL = ["<|im_end|>", "[a b]", "KISS", "ﬁx", "<｜end▁of▁sentence｜>"]
MARKS = Marks(CONTROL)
ALPHABET = frozenset("".join(CONTROL))

small = st.text(st.sampled_from("ab <|]K ksſﬁﬀßİıẞ\t\n\x1c\u2028é中"), max_size=12)
piece = st.text(st.sampled_from("ab <|K\n"), min_size=1, max_size=2)


def test_unmark_undoes_mark() -> None:
    @given(st.text())
    def holds(text: str) -> None:
        marked = MARKS.mark(text)
        assert MARKS.unmark(marked) == text
        assert len(marked) == len(text)
        assert ALPHABET.isdisjoint(str.__str__(marked))

    holds()


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "==": lambda text, other, n: text == other,
    "!=": lambda text, other, n: text != other,
    "<": lambda text, other, n: text < other,
    "<=": lambda text, other, n: text <= other,
    ">": lambda text, other, n: text > other,
    ">=": lambda text, other, n: text >= other,
    "== from the right": lambda text, other, n: plain(other) == text,
    "hash": lambda text, other, n: {plain(text): 1}.get(text),
    "in": lambda text, other, n: other in text,
    "len": lambda text, other, n: len(text),
    "slice": lambda text, other, n: text[n:],
    "slice back": lambda text, other, n: text[:-1],
    "iter": lambda text, other, n: list(text),
    "repr": lambda text, other, n: repr(text),
    "str": lambda text, other, n: str(text),
    "startswith": lambda text, other, n: text.startswith((other, "x")),
    "strip chars": lambda text, other, n: text.strip(other),
    "split sep": lambda text, other, n: text.split(other, n),
    "rsplit sep": lambda text, other, n: text.rsplit(other, n),
    "split max": lambda text, other, n: text.split(None, n),
    "rsplit max": lambda text, other, n: text.rsplit(None, n),
    "splitlines keepends": lambda text, other, n: text.splitlines(True),
}
WITH_ARGUMENT = {
    "startswith",
    "endswith",
    "find",
    "rfind",
    "index",
    "count",
    "removeprefix",
    "removesuffix",
    "partition",
}
for _name in sorted(TEXT_METHODS):
    if _name in WITH_ARGUMENT or _name == "rpartition":
        CALLS[_name] = lambda text, other, n, name=_name: getattr(text, name)(other)
    else:
        CALLS[_name] = lambda text, other, n, name=_name: getattr(text, name)()


def outcome(call: Callable[[Any, Any, Any], Any], *args: Any) -> Any:
    try:
        return call(*args)
    except ValueError as error:
        return type(error)


def unmarked(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(unmarked, value))
    return MARKS.unmark(value) if isinstance(value, str) else value


def texts_in(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "".join(map(texts_in, value))
    return str.__str__(value) if isinstance(value, str) else ""


@pytest.mark.parametrize("name", sorted(CALLS))
def test_marked_text_behaves_like_the_plain_text(name: str) -> None:
    @given(small, piece, st.integers(0, 3), st.booleans())
    def holds(text: str, other: str, n: int, marked_argument: bool) -> None:
        argument = MARKS.mark(other) if marked_argument else other
        result = outcome(CALLS[name], MARKS.mark(text), argument, n)
        assert unmarked(result) == outcome(CALLS[name], text, other, n)
        assert type(unmarked(result)) is type(outcome(CALLS[name], text, other, n))
        assert ALPHABET.isdisjoint(texts_in(result))  # whatever is returned: the user's characters stay marked

    holds()


@given(small, small, st.sampled_from(["upper", "lower", "title", "capitalize", "casefold", "swapcase"]))
def test_case_keeps_who_wrote_a_character(template: str, user: str, method: str) -> None:
    mixed = MarkedText(template + str.__str__(MARKS.mark(user)), MARKS)
    result = getattr(mixed, method)()
    expected = getattr(template + user, method)()
    assert MARKS.unmark(result) == expected
    assume(len(expected) == len(mixed))
    assert ALPHABET.isdisjoint(str.__str__(result)[len(template) :])
    assert str.__str__(result)[: len(template)] == expected[: len(template)]


def test_no_character_turns_into_a_control_tokens_by_case() -> None:
    """All of Unicode: what str makes of a marked character holds nothing of the control tokens."""
    for code in range(0x110000):
        if 0xD800 <= code <= 0xDFFF:
            continue
        marked = str.__str__(MARKS.mark(chr(code)))
        cased = marked.upper() + marked.lower() + marked.title() + marked.casefold()
        assert ALPHABET.isdisjoint(cased), hex(code)


@given(small, small)
def test_operations_of_str_that_bypass_the_class_keep_the_marks(one: str, two: str) -> None:
    a, b = MARKS.mark(one), MARKS.mark(two)
    for made in (a + b, str.__mod__("%s%s", (a, b)), "".join([a, b]), str.join(a, [b, b])):
        assert ALPHABET.isdisjoint(str.__str__(made))


@pytest.mark.parametrize("token", ['<"x">', "a\\b", "<\n>", "\x00"])
def test_control_tokens_that_json_would_escape_are_refused(token: str) -> None:
    with pytest.raises(ModelFileError, match=re.escape("control token contains")):
        Marks(["<s>", token])


def test_too_many_characters_are_refused() -> None:
    with pytest.raises(ModelFileError, match=r"2100 different characters.* 2047"):
        Marks([chr(0x4E00 + i) for i in range(2100)])
