"""Logprobs in OpenAI's shapes, for tokens that are no text alone, that share a text, or that can't be."""

import json
import math

import pytest

from cutaway.engine.outputs import Logprob
from cutaway.formats.open_model import open_model
from cutaway.hub import resolve
from cutaway.server.http.write_json import json_bytes
from cutaway.server.openai.logprobs import FLOOR, CompletionLogprobs, chat_logprobs
from cutaway.tokenizer.open_tokenizer import open_tokenizer
from cutaway.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def tokenizer() -> Tokenizer:
    """SmolLM2's."""
    with open_model(resolve("smollm2").path) as source:
        return open_tokenizer(source)


def entry(value: float, rank: int = 1, text: str = "?") -> Logprob:
    return Logprob(value, rank, text)


def test_parts_of_a_character_are_told_apart(tokenizer: Tokenizer) -> None:
    first, second, third = tokenizer.encode("😀", add_bos=False)
    at = [{first: entry(-1), second: entry(-2, 2)}, {second: entry(-1)}, {third: entry(-3)}]
    writer = CompletionLogprobs(tokenizer, [], skip_special=True)
    found = writer.answer([first, second, third], at)
    spelt = "".join(found["tokens"]).replace("bytes:", "")
    assert bytes.fromhex(spelt.replace("\\x", "")).decode() == "😀"
    assert all(name.startswith("bytes:") for name in found["tokens"])
    assert list(found["top_logprobs"][0].values()) == [-1, -2]
    assert found["text_offset"] == [0, 0, 0]
    (letter,) = tokenizer.encode("a", add_bos=False)
    assert writer.answer([letter], [{letter: entry(-1)}])["text_offset"] == [1]


def test_an_answer_that_finishes_the_prompts_character(tokenizer: Tokenizer) -> None:
    """Offsets are places in the text that is sent, with the prompt or without it."""
    first, second, third = tokenizer.encode("😀", add_bos=False)
    (letter,) = tokenizer.encode("a", add_bos=False)
    answer = [second, third, letter]
    at = [{token: entry(-1)} for token in answer]
    alone = CompletionLogprobs(tokenizer, [letter, first], skip_special=True)
    assert alone.answer(answer, at)["text_offset"] == [0, 0, 1]
    for text in ("a", "written otherwise"):
        echoed = CompletionLogprobs(tokenizer, [letter, first], skip_special=True)
        assert echoed.prompt([None, {first: entry(-1)}], text)["text_offset"] == [0, 1]
        assert echoed.answer(answer, at)["text_offset"] == [len(text), len(text), len(text) + 1]


def test_offsets_go_on_and_special_tokens_have_no_width(tokenizer: Tokenizer) -> None:
    special = tokenizer.encode("<|im_end|>", parse_special=True)[0]
    words = tokenizer.encode("One two", add_bos=False)
    for skip, width in ((True, 0), (False, len("<|im_end|>"))):
        writer = CompletionLogprobs(tokenizer, words[:1], skip_special=skip)
        assert writer.prompt([None], "One")["text_offset"] == [0]
        at = [{special: entry(-1)}, {words[1]: entry(-1)}]
        assert writer.answer([special, words[1]], at)["text_offset"] == [3, 3 + width]


def test_two_tokens_of_one_text(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The likelier stands for it: a text can be a key once."""
    monkeypatch.setattr(tokenizer, "token_bytes", lambda token: b"a")
    writer = CompletionLogprobs(tokenizer, [], skip_special=True)
    found = writer.answer([9], [{8: entry(-0.5), 9: entry(-2, 2)}])
    assert found["top_logprobs"] == [{"a": -0.5}]
    assert found["token_logprobs"] == [-2]


def test_nothing_is_infinite(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a", add_bos=False)
    at = [{ids[0]: entry(-math.inf, 9, "a")}]
    whole = chat_logprobs(tokenizer, ids, at, 1)
    assert whole[0]["logprob"] == FLOOR
    assert whole[0]["top_logprobs"][0]["logprob"] == FLOOR
    lists = CompletionLogprobs(tokenizer, [], skip_special=True).answer(ids, at)
    assert lists["token_logprobs"] == [FLOOR]
    assert json.loads(json_bytes([whole, lists]))


def test_a_token_beyond_the_likeliest(tokenizer: Tokenizer) -> None:
    """It has its own logprob, and the list has as many as were asked for."""
    a, b, c = (tokenizer.encode(text, add_bos=False)[0] for text in "abc")
    at = {a: entry(-1, 1, "a"), b: entry(-2, 2, "b"), c: entry(-7, 50, "c")}
    (found,) = chat_logprobs(tokenizer, [c], [at], 2)
    assert (found["token"], found["logprob"], found["bytes"]) == ("c", -7, [99])
    assert [each["token"] for each in found["top_logprobs"]] == ["a", "b"]
    assert chat_logprobs(tokenizer, [c], [at], 0)[0]["top_logprobs"] == []


def test_half_a_character_in_json() -> None:
    """Whatever a client sent comes back as JSON that can be read."""
    assert json_bytes({"a": "x\ud83d"}) == b'{"a":"x\\ud83d"}'
    assert json.loads(json_bytes("\ud83d😀")) == "\ud83d😀"
    with pytest.raises(ValueError, match="JSON"):
        json_bytes(math.nan)
