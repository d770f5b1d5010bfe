"""Where an answer ends, and what of it is text: stop strings, stop ids, min_tokens, the limits.

Over a runner whose answer is given, with SmolLM2's tokenizer.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_runner import PROMPT, scripted_stream

from cutaway.engine.outputs import Delta, RequestOutput
from cutaway.errors import InvalidRequestError
from cutaway.formats.gguf import open_gguf
from cutaway.sampling.params import SamplingParams
from cutaway.tokenizer import Tokenizer, load_tokenizer

END = 2  # <|im_end|>, SmolLM2's end of a turn


@pytest.fixture(scope="module")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    with open_gguf(smollm2_path) as file:
        return load_tokenizer(file.metadata)


def play(tokenizer: Tokenizer, script: list[int], **params: Any) -> tuple[list[Delta], RequestOutput]:
    stream = scripted_stream(tokenizer, script, **params)
    deltas = list(stream)
    output = stream.output()
    whole = output.outputs[0]
    assert "".join(delta.text for delta in deltas) == whole.text
    assert [token for delta in deltas for token in delta.token_ids] == whole.token_ids
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason == whole.finish_reason is not None
    assert output.finished
    return deltas, output


def one_by_one(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of single characters: another way to cut the same text than the tokenizer's."""
    return [token for character in text for token in tokenizer.encode(character)]


def first_end(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Where the text ends and by which stop string: the one complete first, the longest of several."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return end - len(stop), stop
    return None


TEXT = "Grüße an 😀 alle: eins, zwei, eins, drei."


@pytest.mark.parametrize("cut", [Tokenizer.encode, one_by_one])
@pytest.mark.parametrize("include", [False, True])
def test_every_stop_string_of_a_text(tokenizer: Tokenizer, cut: Any, include: bool) -> None:
    script = cut(tokenizer, TEXT)
    assert tokenizer.decode(script) == TEXT
    for start, end in itertools.combinations(range(len(TEXT) + 1), 2):
        if end - start not in (1, 2, 3, 5, 8, 13, 21):
            continue
        stop = TEXT[start:end]
        _, output = play(tokenizer, script, stop=[stop, "not in it"], include_stop_str_in_output=include)
        whole = output.outputs[0]
        place = TEXT.index(stop)
        assert whole.text == TEXT[: place + (len(stop) if include else 0)], stop
        assert (whole.finish_reason, whole.stop_reason) == ("stop", stop)
        # No token is generated behind the one that completes it.
        assert stop not in tokenizer.decode(whole.token_ids[:-1])
        assert stop in tokenizer.decode(whole.token_ids)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text("ab c", min_size=1, max_size=30),
    stops=st.lists(st.text("ab c", min_size=1, max_size=5), max_size=4),
    one=st.booleans(),
)
def test_any_stop_strings(tokenizer: Tokenizer, text: str, stops: list[str], one: bool) -> None:
    script = one_by_one(tokenizer, text) if one else tokenizer.encode(text)
    _, output = play(tokenizer, script, stop=stops)
    found = first_end(text, stops)
    whole = output.outputs[0]
    assert whole.text == (text if found is None else text[: found[0]])
    assert (whole.finish_reason, whole.stop_reason) == (("length", None) if found is None else ("stop", found[1]))


def test_text_is_held_back_no_longer_than_it_may_be_a_stop_string(tokenizer: Tokenizer) -> None:
    script = one_by_one(tokenizer, "1, 2, zz, 3, 4 z")
    deltas, _ = play(tokenizer, script, stop=["zzz"])
    assert [delta.text for delta in deltas] == [*"1, 2, ", "", "", "zz,", *" 3, 4 ", "z"]
    plain, _ = play(tokenizer, script)
    without_z, _ = play(tokenizer, script, stop=["qqq"])
    assert [delta.text for delta in without_z] == [delta.text for delta in plain]


@pytest.mark.parametrize("stop", [None, [], "zzz", ["zzz"], ["zzz", "zzz"], ("zzz",)])
def test_no_stop_string_or_one_that_does_not_come(tokenizer: Tokenizer, stop: Any) -> None:
    script = tokenizer.encode(TEXT)
    _, output = play(tokenizer, script, stop=stop)
    assert output.outputs[0].text == TEXT
    assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize("stop", ["", [""], ["a", ""], [None], 5, [b"a"], "\ud83d", ["\udcf0"]])
def test_stop_strings_that_are_refused(stop: Any) -> None:
    with pytest.raises(InvalidRequestError, match="stop") as caught:
        SamplingParams(stop=stop)
    assert caught.value.field == "stop"


def test_a_stop_string_in_a_multi_part_character_s_neighbourhood(tokenizer: Tokenizer) -> None:
    """The token that completes the stop string also begins a character, which is then no text."""
    first, rest = tokenizer.encode("😀")[0], tokenizer.encode("😀")[1:]
    script = [*tokenizer.encode("a b"), first, *rest]
    deltas, output = play(tokenizer, script, stop=["b"])
    assert output.outputs[0].text == "a "
    assert len(deltas) == len(tokenizer.encode("a b"))


@pytest.mark.parametrize("include", [False, True])
def test_stop_ids(tokenizer: Tokenizer, include: bool) -> None:
    script = tokenizer.encode("one two three four")
    where = 2
    _, output = play(tokenizer, script, stop_token_ids=[script[where]], include_stop_str_in_output=include)
    whole = output.outputs[0]
    assert whole.token_ids == script[: where + 1]
    assert whole.text == tokenizer.decode(script[: where + include])
    assert (whole.finish_reason, whole.stop_reason) == ("stop", script[where])


def test_the_end_of_a_turn(tokenizer: Tokenizer) -> None:
    assert END in tokenizer.eos_ids
    script = [*tokenizer.encode("fine"), END, *tokenizer.encode(" more")]
    _, output = play(tokenizer, script)
    assert (output.outputs[0].text, output.outputs[0].stop_reason) == ("fine", None)
    assert output.outputs[0].token_ids[-1] == END
    _, ignored = play(tokenizer, script, ignore_eos=True)
    assert ignored.outputs[0].token_ids == script
    assert ignored.outputs[0].text == "fine more"
    _, shown = play(tokenizer, script, ignore_eos=True, skip_special_tokens=False)
    assert shown.outputs[0].text == "fine<|im_end|> more"
    _, listed = play(tokenizer, script, ignore_eos=True, stop_token_ids=[END])
    assert (listed.outputs[0].text, listed.outputs[0].stop_reason) == ("fine", END)


def test_every_end_of_sequence_id_ends(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.eos_ids) > 1
    for token in tokenizer.eos_ids:
        _, output = play(tokenizer, [504, token, 504])
        assert output.outputs[0].token_ids == [504, token]
        assert output.outputs[0].finish_reason == "stop"


@pytest.mark.parametrize("min_tokens", range(7))
def test_min_tokens_against_a_forced_end(tokenizer: Tokenizer, min_tokens: int) -> None:
    """So many tokens that are no end, then the end, whatever the bias."""
    _, output = play(tokenizer, [504], max_tokens=9, min_tokens=min_tokens, logit_bias={END: 100})
    ids = output.outputs[0].token_ids
    assert len(ids) == min_tokens + 1
    assert ids[-1] == END
    assert not set(ids[:-1]) & tokenizer.eos_ids


def test_min_tokens_and_stop_strings(tokenizer: Tokenizer) -> None:
    script = one_by_one(tokenizer, "a.b.c.d")
    for min_tokens, text in enumerate(["a", "a", "a.b", "a.b", "a.b.c", "a.b.c", "a.b.c.d"]):
        _, output = play(tokenizer, script, stop=".", min_tokens=min_tokens)
        assert output.outputs[0].text == text


def test_a_stop_at_the_last_place_is_a_stop(tokenizer: Tokenizer) -> None:
    script = one_by_one(tokenizer, "ab!")
    _, output = play(tokenizer, script, stop="!", max_tokens=3)
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", "!")


@pytest.mark.parametrize("max_tokens", [6, 7, 10**8, None])
def test_the_context_is_the_last_limit(tokenizer: Tokenizer, max_tokens: int | None) -> None:
    script = tokenizer.encode("one two three four five six seven")
    _, output = play(tokenizer, script, context=len(PROMPT) + 6, max_tokens=max_tokens)
    assert output.outputs[0].token_ids == script[:6]
    assert output.outputs[0].finish_reason == "length"


def test_without_detokenization_there_are_ids_alone(tokenizer: Tokenizer) -> None:
    script = tokenizer.encode("one two three")
    _, output = play(tokenizer, script, detokenize=False)
    assert output.outputs[0].text == ""
    assert output.outputs[0].token_ids == script
    with pytest.raises(InvalidRequestError, match="detokenize") as caught:
        SamplingParams(detokenize=False, stop="x")
    assert caught.value.field == "stop"


def test_bad_words_never_come(tokenizer: Tokenizer) -> None:
    script = tokenizer.encode("the red house")
    _, output = play(tokenizer, script, bad_words=["red"])
    assert "red" not in output.outputs[0].text
    whole = tokenizer.encode(" red house")
    _, output = play(tokenizer, [504, *whole, *whole], bad_words=["red house"])
    assert " red house" not in output.outputs[0].text
    assert " red" in output.outputs[0].text


def test_a_character_s_parts_are_never_shown(tokenizer: Tokenizer) -> None:
    """Ids of Hello and the first two of an emoji's as the prompt: nothing of the prompt comes again."""
    emoji = tokenizer.encode("😀")
    assert len(emoji) == 3
    deltas, output = play(tokenizer, [*emoji, *tokenizer.encode(" fine")])
    assert [delta.text for delta in deltas] == ["", "", "😀", " fine"]
    prompt = [*tokenizer.encode("Hello "), *emoji[:2]]
    deltas, output = play(tokenizer, [emoji[2], *tokenizer.encode(" fine")], prompt=prompt)
    assert [delta.text for delta in deltas] == ["😀", " fine"]
    deltas, output = play(tokenizer, tokenizer.encode("a fine"), prompt=prompt)
    assert output.outputs[0].text == "a fine"
    deltas, output = play(tokenizer, emoji[:2])
    assert [delta.text for delta in deltas] == ["", "\ufffd"]


def test_choices_come_side_by_side(tokenizer: Tokenizer) -> None:
    script = tokenizer.encode("one two three")
    stream = scripted_stream(tokenizer, script, n=3, seed=5, temperature=8.0, logprobs=0)
    deltas = list(stream)
    assert [delta.index for delta in deltas] == [0, 1, 2] * 3
    output = stream.output()
    assert [each.index for each in output.outputs] == [0, 1, 2]
    assert len({tuple(each.token_ids) for each in output.outputs}) == 3
    assert output.finished
    for each in output.outputs:
        assert "".join(d.text for d in deltas if d.index == each.index) == each.text
    alone = scripted_stream(tokenizer, script, n=1, seed=5, temperature=8.0, logprobs=0).run()
    assert alone.outputs[0] == output.outputs[0]
