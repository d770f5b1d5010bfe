"""Answers of a form in the engine's core, over a runner without a model: what ends them, who shares steps with them,
and that nothing but the form is changed.
"""

import re
from typing import Any

import numpy as np
import pytest
from core_rig import PROMPT, Answer, Rig
from prefix_runner import PrefixRunner

from cutaway.engine.choice import Asked
from cutaway.engine.outputs import CompletionOutput
from cutaway.errors import InvalidRequestError
from cutaway.grammar.grammars import Grammars
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.forbidden import NO_BAD_WORDS, stop_ids
from cutaway.sampling.history import NO_IDS, History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, sample_row
from support.small_vocabulary import SmallVocabulary

PIECES = [
    *(bytes([97 + n]) for n in range(26)),
    *(bytes([48 + n]) for n in range(10)),
    b"ab",
    b"12",
    b"x1",
    b"-",
    b" ",
    *(bytes([65 + n]) for n in range(26)),
]
VOCABULARY: Any = SmallVocabulary(PIECES)
V = VOCABULARY.vocab_size
(END,) = VOCABULARY.eos_ids
CODE = "[a-f]{2,5}-[0-9]{3}"


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(VOCABULARY)


class Forms:
    """A rig whose requests may have a form."""

    def __init__(self, grammars: Grammars, **rig: Any) -> None:
        self.grammars = grammars
        self.rig = Rig(PrefixRunner(vocab_size=V, **rig.pop("runner", {})), **rig)
        self._number = 0

    def ask(self, seed: int = 1, prompt: list[int] = PROMPT, **params: Any) -> Answer:
        checked = SamplingParams(**{"max_tokens": 30, **params})
        form = checked.structured_outputs
        grammar = None if form is None else self.grammars.get(form)
        ends = stop_ids(checked, VOCABULARY.eos_ids)
        assert checked.max_tokens is not None
        asked = Asked(list(prompt), checked, seed, checked.max_tokens, ends, NO_BAD_WORDS, grammar=grammar)
        self._number += 1
        answer = Answer(asked, str(self._number), VOCABULARY)
        self.rig.core.submit(answer.generation)
        return answer

    def one(self, seed: int = 1, **params: Any) -> CompletionOutput:
        """The only choice of the only request."""
        answer = self.ask(seed, **params)
        self.rig.run()
        if answer.error is not None:
            raise answer.error
        (choice,) = answer.choices()
        return choice


def regex(expression: str) -> dict[str, str]:
    return {"regex": expression}


def test_every_answer_is_of_its_form_and_ends_with_it(grammars: Grammars) -> None:
    for seed in range(20):
        found = Forms(grammars).one(seed, structured_outputs=regex(CODE), temperature=3.0)
        assert re.fullmatch(CODE, found.text)
        assert (found.finish_reason, found.stop_reason) == ("stop", None)
        assert found.text == VOCABULARY.decode(found.token_ids)
        assert END not in found.token_ids


def test_where_it_may_go_on_a_token_ends_it(grammars: Grammars) -> None:
    found = [Forms(grammars).one(seed, structured_outputs=regex("[a-z]+"), temperature=3.0) for seed in range(20)]
    ended = [each for each in found if each.finish_reason == "stop"]
    assert all(each.token_ids[-1] == END and re.fullmatch("[a-z]+", each.text) for each in ended)
    assert len(ended) > 3
    assert all(each.finish_reason == "length" and len(each.token_ids) == 30 for each in found if each not in ended)


@pytest.mark.parametrize(
    "rig",
    [
        {},
        {"num_blocks": 7},
        {"num_blocks": 5, "max_sequences": 2},
        {"keeps_kv": False},
        {"runner": {"max_step_tokens": 7}},
    ],
)
def test_neighbours_preemption_and_chunks_change_nothing(grammars: Grammars, rig: dict[str, Any]) -> None:
    asked: list[dict[str, Any]] = [
        {"structured_outputs": regex(CODE), "n": 3, "temperature": 2.0, "max_tokens": 12},
        {"temperature": 1.0, "max_tokens": 14},
        {"structured_outputs": regex("[a-z]+ [0-9]+"), "temperature": 3.0, "max_tokens": 14, "min_tokens": 9},
        {"structured_outputs": {"choice": ["ab12", "x1", "zz"]}, "n": 2, "temperature": 2.0, "max_tokens": 9},
    ]

    def alone(seed: int, params: dict[str, Any]) -> list[CompletionOutput]:
        single = Forms(grammars)
        answer = single.ask(seed, **params)
        single.rig.run()
        return answer.choices()

    together = Forms(grammars, **rig)
    answers = [together.ask(seed, **params) for seed, params in enumerate(asked)]
    together.rig.run()
    for seed, (params, answer) in enumerate(zip(asked, answers, strict=True)):
        assert answer.error is None
        assert answer.choices() == alone(seed, params)
    if rig.get("num_blocks"):
        assert together.rig.core.scheduler.num_preemptions > 0


def test_the_last_token_that_was_asked_for_cuts_it(grammars: Grammars) -> None:
    whole = Forms(grammars).one(structured_outputs=regex(CODE), temperature=2.0)
    for most in range(1, len(whole.token_ids) + 1):
        cut = Forms(grammars).one(structured_outputs=regex(CODE), temperature=2.0, max_tokens=most)
        assert cut.token_ids == whole.token_ids[:most]
        complete = most == len(whole.token_ids)
        assert cut.finish_reason == ("stop" if complete else "length")
        assert cut.text == whole.text if complete else whole.text.startswith(cut.text)


@pytest.mark.parametrize("included", [False, True])
def test_a_stop_text_cuts_it(grammars: Grammars, included: bool) -> None:
    found = Forms(grammars).one(
        structured_outputs=regex(CODE), temperature=2.0, stop=["-"], include_stop_str_in_output=included
    )
    assert re.fullmatch("[a-f]{2,5}" + ("-" if included else ""), found.text)
    assert (found.finish_reason, found.stop_reason) == ("stop", "-")


def test_a_stop_id_that_is_text_cuts_it_where_the_form_allows_it(grammars: Grammars) -> None:
    dash = PIECES.index(b"-")
    found = Forms(grammars).one(structured_outputs=regex(CODE), temperature=2.0, stop_token_ids=[dash])
    assert re.fullmatch("[a-f]{2,5}", found.text)
    assert found.token_ids[-1] == dash
    assert (found.finish_reason, found.stop_reason) == ("stop", dash)
    for seed in range(20):
        found = Forms(grammars).one(seed, structured_outputs=regex("[ab]+"), temperature=3.0, stop_token_ids=[dash])
        assert dash not in found.token_ids


def test_a_stop_id_that_is_no_text_ends_it_where_it_may_end(grammars: Grammars) -> None:
    (tool,) = VOCABULARY.specials - {END}
    reasons = set()
    for seed in range(30):
        found = Forms(grammars).one(
            seed, structured_outputs=regex("[ab]+c"), temperature=3.0, stop_token_ids=[tool], max_tokens=8
        )
        assert tool not in found.token_ids  # behind c, nothing follows
        found = Forms(grammars).one(
            seed, structured_outputs=regex("c[ab]*"), temperature=3.0, stop_token_ids=[tool], max_tokens=8
        )
        assert re.fullmatch("c[ab]*", found.text)
        reasons.add(found.stop_reason)
    assert reasons == {None, tool}


def test_the_form_wins_over_min_tokens_where_nothing_can_follow(grammars: Grammars) -> None:
    found = Forms(grammars).one(structured_outputs=regex("abc"), min_tokens=10)
    assert (found.text, found.finish_reason) == ("abc", "stop")


def test_min_tokens_wins_where_something_can(grammars: Grammars) -> None:
    for seed in range(10):
        found = Forms(grammars).one(seed, structured_outputs=regex("[a-c]+"), temperature=3.0, min_tokens=10)
        assert len(found.token_ids) >= 10
        assert END not in found.token_ids[:10]


def test_without_the_end_token_it_goes_on_as_long_as_it_can(grammars: Grammars) -> None:
    found = Forms(grammars).one(structured_outputs=regex("[a-c]+"), temperature=3.0, ignore_eos=True)
    assert (len(found.token_ids), found.finish_reason) == (30, "length")
    assert END not in found.token_ids
    assert Forms(grammars).one(structured_outputs=regex(CODE), ignore_eos=True).finish_reason == "stop"


def test_logprobs_are_the_model_s_own(grammars: Grammars) -> None:
    found = Forms(grammars).one(structured_outputs=regex(CODE), temperature=2.0, logprobs=3)
    runner, prefix = PrefixRunner(vocab_size=V), list(PROMPT)
    assert found.logprobs is not None
    for token, entries in zip(found.token_ids, found.logprobs, strict=True):
        row = runner.logits_after(prefix).astype(np.float64)
        model = row - np.log(np.exp(row).sum())
        assert entries[token].logprob == pytest.approx(model[token], abs=1e-4)
        assert entries[token].rank == 1 + int((row > row[token]).sum())
        assert set(np.argsort(-row)[:3].tolist()) <= set(entries)
        prefix.append(token)


def test_what_leaves_no_token_ends_that_request_alone(grammars: Grammars) -> None:
    forms = Forms(grammars)
    wrong = forms.ask(structured_outputs=regex("[a-z]+"), allowed_token_ids=[PIECES.index(b"0")])
    other = forms.ask(structured_outputs=regex("abc"))
    forms.rig.run()
    assert isinstance(wrong.error, InvalidRequestError)
    assert re.search("allowed_token_ids allows 1, structured_outputs allows 27", str(wrong.error))
    assert other.choices()[0].text == "abc"


def test_an_abort_ends_it(grammars: Grammars) -> None:
    forms = Forms(grammars)
    answer = forms.ask(structured_outputs=regex("[a-c]+"), n=2, ignore_eos=True)
    for _ in range(3):
        forms.rig.core.step()
    forms.rig.core.abort(answer.generation)
    forms.rig.run()
    assert [each.finish_reason for each in answer.choices()] == ["abort"] * 2
    assert all(re.fullmatch("[a-c]+", each.text) for each in answer.choices())


@pytest.mark.parametrize("size", [31, 32, 33, 64, 65, 1000])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_mask_that_allows_all_changes_no_bit(size: int, temperature: float) -> None:
    rng = np.random.default_rng(size)
    params = SamplingParams(temperature=temperature, top_p=0.9, logprobs=5)
    scratch = SamplerScratch.allocate(size)
    everything = np.full(-(-size // 32), -1, np.int32)
    with float_environment():
        for position in range(50):
            logits, key = rng.normal(0, 3, size).astype(np.float32), NoiseKey(7, 0, position)
            with_mask = sample_row(logits, params, key, scratch, History(NO_IDS, NO_IDS, NO_IDS, everything))
            assert with_mask == sample_row(logits, params, key, scratch)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 65, 1000])
def test_a_mask_is_minus_infinity_where_a_bit_is_0(size: int) -> None:
    rng = np.random.default_rng(size)
    scratch = SamplerScratch.allocate(size)
    with float_environment():
        for position in range(50):
            allowed = rng.random(size) < rng.choice([0.02, 0.5, 0.98])
            allowed[rng.integers(size)] = True
            packed = np.packbits(np.pad(allowed, (0, -size % 32)), bitorder="little").view(np.int32)
            logits, key = rng.normal(0, 3, size).astype(np.float32), NoiseKey(7, 0, position)
            for params in (SamplingParams(temperature=0), SamplingParams(temperature=2.0, logprobs=2)):
                found = sample_row(logits, params, key, scratch, History(NO_IDS, NO_IDS, NO_IDS, packed))
                ids = np.flatnonzero(allowed).tolist()
                same = SamplingParams(temperature=params.temperature, logprobs=params.logprobs, allowed_token_ids=ids)
                assert found == sample_row(logits, same, key, scratch)


def test_a_mask_of_another_vocabulary_is_refused() -> None:
    for words in (1, 3):
        bits = np.full(words, -1, np.int32)
        with pytest.raises(InvalidRequestError, match="outside the vocabulary"):
            sample_row(
                np.zeros(50, np.float32),
                SamplingParams(),
                NoiseKey(0, 0, 0),
                SamplerScratch.allocate(50),
                History(NO_IDS, NO_IDS, NO_IDS, bits),
            )
