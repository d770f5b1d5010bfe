"""Stop strings: the same end of the text for every way to cut it, and no character held back without need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.stop_strings import StopMatch, StopStrings

# Few letters, so that stop strings overlap themselves, each other and the cuts.
stop_lists = st.lists(st.text("ab😀", min_size=1, max_size=5), max_size=4)
piece_lists = st.lists(st.tuples(st.text("ab😀", max_size=6), st.booleans()), max_size=8)


def first_match(stops: list[str], pieces: list[tuple[str, bool]], include: bool) -> StopMatch | None:
    """The definition: the first end at which some stop string is complete and allowed; the longest there."""
    text = "".join(piece for piece, _ in pieces)
    allowed = [may_stop for piece, may_stop in pieces for _ in piece]
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete and allowed[end - 1]:
            stop = max(complete, key=len)
            return StopMatch(stop, end if include else end - len(stop))
    return None


def longest_beginning(stops: list[str], text: str) -> int:
    """The length of the longest end of the text that is a proper beginning of a stop string."""
    return max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])), default=0)


@given(stop_lists, piece_lists, st.booleans())
def test_equal_to_a_search_of_the_whole_text(stops: list[str], pieces: list[tuple[str, bool]], include: bool) -> None:
    search = StopStrings(stops, include=include)
    shown = "".join(search.push(piece, may_stop) for piece, may_stop in pieces) + search.flush()
    match = first_match(stops, pieces, include)
    text = "".join(piece for piece, _ in pieces)
    assert search.match == match
    assert shown == (text if match is None else text[: match.text_length])


@given(stop_lists, piece_lists, st.booleans())
def test_only_what_may_be_a_stop_string_is_held(
    stops: list[str], pieces: list[tuple[str, bool]], include: bool
) -> None:
    search = StopStrings(stops, include=include)
    text = shown = ""
    for piece, may_stop in pieces:
        text += piece
        shown += search.push(piece, may_stop)
        if search.match is not None:
            break
        held = 0 if include else longest_beginning(stops, text)
        assert shown == text[: len(text) - held]


@pytest.mark.parametrize("stop", ["</s>", "aab", "\n\n", "stop"])
@pytest.mark.parametrize("include", [False, True])
def test_every_place_and_every_cut(stop: str, include: bool) -> None:
    around = "aaab<</s><n\nstost"
    for place in range(len(around) + 1):
        text = around[:place] + stop + around[place:]
        match = first_match([stop], [(text, True)], include)
        assert match is not None
        for first in range(len(text) + 1):
            for second in range(first, len(text) + 1):
                search = StopStrings([stop], include=include)
                shown = [search.push(piece) for piece in (text[:first], text[first:second], text[second:])]
                assert search.match == match
                assert "".join(shown) == text[: match.text_length]


def test_without_a_match_all_text_comes_at_once() -> None:
    """A stop string whose first letter never comes holds nothing back, however long it is."""
    search = StopStrings(["zzz", "Z" * 1000])
    assert [search.push(piece) for piece in (" 3", ",", " 4", " and z", "oo")] == [" 3", ",", " 4", " and ", "zoo"]
    assert search.flush() == ""


def test_a_long_stop_string_cuts_no_other_marker_in_half() -> None:
    search = StopStrings(["Observation:"])
    assert search.push("</think>") == "</think>"
    assert search.push(" Obs") == " "
    assert [search.flush(), search.flush()] == ["Obs", ""]


def test_after_the_match_nothing_is_shown() -> None:
    search = StopStrings(["b"])
    assert [search.push("abc"), search.push("d"), search.flush()] == ["a", "", ""]
    assert search.match == StopMatch("b", 1)


@pytest.mark.parametrize(
    ("stops", "pieces", "match"),
    [
        (["ab", "abc"], ["abc"], StopMatch("ab", 0)),  # of two with the same beginning, what is complete first
        (["abcd", "bc"], ["xabcd"], StopMatch("bc", 2)),  # complete first, though another began before it
        (["c", "abc", "bc"], ["xabc"], StopMatch("abc", 1)),  # complete together: what began first
        (["aa", "aa"], ["baaa"], StopMatch("aa", 1)),
    ],
)
def test_which_stop_string_wins(stops: list[str], pieces: list[str], match: StopMatch) -> None:
    search = StopStrings(stops)
    for piece in pieces:
        search.push(piece)
    assert search.match == match


def test_text_that_may_not_stop() -> None:
    """As with a least number of tokens: what is complete before counts as text, what is complete after stops."""
    search = StopStrings(["ab"])
    assert [search.push("ab", may_stop=False), search.push("a", may_stop=False)] == ["ab", ""]
    assert search.push("b") == ""
    assert search.match == StopMatch("ab", 2)


def test_a_stop_string_that_overlaps_itself() -> None:
    search = StopStrings(["aba"])
    assert [search.push("aba", may_stop=False), search.push("ba"), search.match] == ["ab", "", StopMatch("aba", 2)]


@pytest.mark.parametrize(("stops", "message"), [([""], "empty"), (["a", ""], "empty"), (["\ud83d"], "surrogate")])
def test_what_can_not_be_found_is_refused(stops: list[str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        StopStrings(stops)
    assert caught.value.field == "stop"


class CountingText(str):
    reads = 0

    def __getitem__(self, index: object) -> str:
        type(self).reads += 1
        return super().__getitem__(index)  # type: ignore[index]


@pytest.mark.parametrize("text", ["a", "ab", "x"])
def test_twice_the_text_costs_twice_the_comparisons(text: str) -> None:
    def reads(n: int) -> int:
        search = StopStrings([CountingText("a" * 50 + "b")])
        CountingText.reads = 0
        for _ in range(n):
            search.push(text)
        return CountingText.reads

    once, twice = reads(2_000), reads(4_000)
    assert once >= 2_000
    assert twice <= 2.01 * once + 200
    assert once <= 3 * 2_000 * len(text)
