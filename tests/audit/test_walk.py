"""The walk through SmolLM2: its tokens are those of an ordinary generation, and what it shows holds together."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from cutaway import LLM
from cutaway.audit.lens import end_of_forward, lens_bytes
from cutaway.audit.limits import MachineLimits
from cutaway.audit.walk.choice import Choice
from cutaway.audit.walk.forward import PARTS
from cutaway.audit.walk.vectors import spread
from cutaway.audit.walk.walk import LONGEST_PROMPT, TimesWanted, Walk, WalkSettings, walk
from cutaway.cli.walk_json import walk_dict
from cutaway.errors import CapacityError, ComputationError, InvalidRequestError
from cutaway.memory import available
from cutaway.memory.kv_read import read_keys, read_values
from cutaway.model.batch import Piece, make_batch
from cutaway.model.shapes import LAYER_TAPS, STEP_TAPS, evaluate, taps_of
from cutaway.sampling.params import SamplingParams
from support.tapped import spoil_a_score

DOCUMENT = Path(__file__).parents[2] / "docs" / "walk.md"
CHINESE = "今天天气怎么样"
SETTINGS = WalkSettings((0.7,), top_k=0, top_p=0.9, min_p=0.0, seed=7, max_tokens=3)


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=4096) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def prompt(llm: LLM) -> list[int]:
    return llm.tokenizer.encode_chat([{"role": "user", "content": "What is the capital of France?"}])


@pytest.fixture(scope="module")
def france(llm: LLM, prompt: list[int]) -> Walk:
    return walk(llm.runner, llm.tokenizer, prompt, SETTINGS)


def through(llm: LLM, ids: list[int], **changes: Any) -> Walk:
    return walk(llm.runner, llm.tokenizer, ids, dataclasses.replace(SETTINGS, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"seed": -1, "temperatures": (1.5,), "top_p": 1.0},
        {"temperatures": (0.0,)},
        {"top_k": 5, "min_p": 0.05},
        {"max_tokens": 20},
        {"max_tokens": 12, "repetition_penalty": 1.5, "presence_penalty": 0.7, "frequency_penalty": 0.3},
        {"temperatures": (1.0, 0.1, 0.0), "seed": 3},
    ],
)
def test_the_tokens_are_those_of_an_ordinary_generation(llm: LLM, prompt: list[int], changes: dict[str, Any]) -> None:
    seen = through(llm, prompt, **changes)
    expected = llm.generate(prompt, seen.settings.params()[0])[0].outputs[0]
    assert [each.id for each in seen.new_tokens] == expected.token_ids
    assert (seen.text, seen.finish_reason) == (expected.text, expected.finish_reason)
    for token in seen.new_tokens:
        assert token.id == token.choices[0].winner.id


@pytest.mark.parametrize("text", [CHINESE, "a", "🦆 quack\n\n"])
def test_raw_texts_too(llm: LLM, text: str) -> None:
    ids = llm.tokenizer.encode(text)
    seen = through(llm, ids)
    assert [each.id for each in seen.new_tokens] == llm.generate([ids], seen.settings.params()[0])[0].outputs[
        0
    ].token_ids
    assert [each.id for each in seen.prompt] == ids
    assert b"".join(map(llm.tokenizer.token_bytes, ids)).decode() == text


def test_an_answer_that_ends_within_a_character(llm: LLM) -> None:
    """The bytes that are left over are shown as they are by a generation."""
    ids = llm.tokenizer.encode(CHINESE)
    seen = through(llm, ids, temperatures=(0.0,), max_tokens=1)
    assert seen.text == llm.generate([ids], seen.settings.params()[0])[0].outputs[0].text == "\ufffd"


def test_a_prompt_that_ends_within_a_character(llm: LLM) -> None:
    """The answer finishes it, and the text has the whole character, as that of a generation."""
    ids = llm.tokenizer.encode("🦆🦆🦆🦆")[:-1]
    seen = through(llm, ids, temperatures=(0.0,))
    assert seen.text == llm.generate([ids], seen.settings.params()[0])[0].outputs[0].text
    assert seen.text.startswith("🦆")


def test_the_end_of_an_answer_ends_the_walk(llm: LLM) -> None:
    """From the last but one token on: noise depends on the position, not on where a walk begins."""
    ids = llm.tokenizer.encode_chat([{"role": "user", "content": "What is gravity?"}])
    params = SamplingParams(temperature=0.7, top_p=0.9, seed=1, max_tokens=200)
    answer = llm.generate(ids, params)[0].outputs[0]
    assert answer.finish_reason == "stop"
    seen = through(llm, ids + answer.token_ids[:-1], seed=1)
    assert (len(seen.new_tokens), seen.text, seen.finish_reason) == (1, "", "stop")
    assert seen.new_tokens[0].id == answer.token_ids[-1]
    assert seen.new_tokens[0].id in llm.tokenizer.eos_ids


def test_a_long_prompt_goes_in_chunks(llm: LLM) -> None:
    """The first chunks closed, the last one open; attention then reads keys over several tiles and pages."""
    ids = [(7 * i * i + 31 * i + 1) % 40_000 for i in range(512 + 70)]
    seen = through(llm, ids, max_tokens=2)
    assert (seen.forward.tokens, seen.forward.context) == (70, 582)
    assert [each.position for each in seen.forward.embeddings] == list(range(512, 582))
    assert [each.id for each in seen.new_tokens] == llm.generate([ids], seen.settings.params()[0])[0].outputs[
        0
    ].token_ids


def test_attention_is_the_engines_own(france: Walk) -> None:
    """Each row sums to 1, in every layer; that the engine's results follow, no walk goes without."""
    H = france.dimensions["H"]
    for layer in france.forward.layers:
        average = layer.attention.average
        assert sum(average.probabilities) == pytest.approx(1, abs=1e-6)
        assert len(average.probabilities) == len(france.prompt)
        assert len(layer.attention.heads) == H
        assert average.first == pytest.approx(np.mean([head.first for head in layer.attention.heads]))
        assert average.itself == pytest.approx(np.mean([head.itself for head in layer.attention.heads]))
        assert [head.kv_head for head in layer.attention.heads] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sum(france.forward.attention.probabilities) == pytest.approx(1, abs=1e-6)
    for token in france.new_tokens:
        assert sum(token.looks.probabilities) == pytest.approx(1, abs=1e-6)
        assert len(token.looks.probabilities) == token.context == token.position


def test_attention_that_is_not_the_engines_is_not_shown(
    llm: LLM, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_a_score(monkeypatch)
    with pytest.raises(ComputationError, match="the derived attention of layer 0 is wrong"):
        through(llm, prompt)


def test_layers_are_what_the_open_forward_shows(llm: LLM, prompt: list[int], france: Walk) -> None:
    """Norms and ranges again, from a tap of the test's own; layers follow each other."""
    last: dict[tuple[str, int], Any] = {}
    embedded: list[Any] = []
    pages = list(range(llm.runner.kv.num_pages))

    def tap(name: str, layer: int, array: Any) -> None:
        if name == "embed":
            embedded.extend(array.astype(np.float64))
        if not name.endswith("_input"):
            last[name, layer] = array[-1].astype(np.float64)

    llm.runner.step_open(make_batch([Piece(0, prompt, pages)]), tap)
    assert [each.id for each in france.forward.embeddings] == prompt
    for seen, row in zip(france.forward.embeddings, embedded, strict=True):
        assert seen.first_numbers == tuple(row[:4])
        assert seen.row.norm == pytest.approx(np.sqrt((row**2).sum()), rel=1e-12)
    for layer in france.forward.layers:
        i = layer.layer
        parts = {
            "attention_output": layer.attention_adds,
            "attention_residual": layer.between,
            "down": layer.ffn_adds,
            "ffn_residual": layer.after,
        }
        for name, seen in parts.items():
            row = last[name, i]
            assert seen.norm == pytest.approx(np.sqrt((row**2).sum()), rel=1e-12)
            assert (seen.least, seen.greatest) == (row.min(), row.max())
        assert layer.before == (france.forward.layers[i - 1].after if i else france.forward.embeddings[-1].row)
        assert np.abs(last["attention_residual", i] + last["down", i] - last["ffn_residual", i]).max() < 1e-3


def test_shapes_are_those_of_the_shape_table(llm: LLM, france: Walk) -> None:
    present = taps_of(llm.runner.config)
    sizes = {**france.dimensions, "T": len(france.prompt), "O": 1}
    for operations, taps in ((france.forward.outside, STEP_TAPS), (france.forward.layers[-1].operations, LAYER_TAPS)):
        assert {each.name for each in operations} == set(taps) & set(present)
        for each in operations:
            assert each.shape == tuple(evaluate(entry, sizes) for entry in each.symbolic)
            if each.name in PARTS:
                assert each.shape[1] < evaluate(taps[each.name][1], sizes)
            elif each.dtype == "int8":  # the part of the buffer that is valid
                assert max(-each.last.least, each.last.greatest) == 127  # each block of 32 has one
            else:
                assert each.symbolic == taps[each.name]
    # 9 query and 3 key/value heads of 64: rope turns queries and keys, the cache takes keys and values.
    by_name = {each.name: each.shape for each in france.forward.layers[0].operations}
    assert (by_name["qkv"], by_name["down_input"], by_name["attention_input"]) == ((37, 960), (37, 1536), (37, 576))
    assert (by_name["rope"], by_name["kv_write"]) == ((37, 768), (37, 384))


def test_kv_write_is_what_the_cache_holds(llm: LLM, prompt: list[int]) -> None:
    seen = through(llm, prompt, max_tokens=1)
    pages = list(range(llm.runner.kv.num_pages))
    for layer in seen.forward.layers:
        parts = [read(llm.runner.kv, layer.layer, pages, len(prompt))[-1] for read in (read_keys, read_values)]
        expected = spread(np.concatenate(parts, axis=None))
        by_name = {each.name: each for each in layer.operations}
        assert by_name["kv_write"].last == expected
        assert by_name["kv_write"].dtype == str(parts[0].dtype) == "float16"


def test_an_int8_cache_is_shown_as_attention_reads_it(smollm2_path: Path, prompt: list[int]) -> None:
    """Numbers times scales."""
    with LLM(smollm2_path, threads=1, max_model_len=64, kv_dtype="int8") as llm:
        seen = through(llm, prompt, max_tokens=1)
        keys = read_keys(llm.runner.kv, 7, list(range(4)), len(prompt))[-1]
        values = read_values(llm.runner.kv, 7, list(range(4)), len(prompt))[-1]
    written = {each.name: each for each in seen.forward.layers[7].operations}["kv_write"]
    assert written.dtype == "int8"
    assert written.last == spread(np.concatenate([keys, values], axis=None))
    assert seen.kv_bytes_per_token == 2 * 30 * 3 * (64 + 4)


def test_pairs_turn_with_the_position(france: Walk) -> None:
    """SmolLM2's RoPE has base 100,000 and heads of 64: pair i turns by 100000^(-i/32) a position."""
    assert len(france.forward.pairs) == 32
    for i, pair in enumerate(france.forward.pairs):
        radians = 100_000 ** (-i / 32)
        assert (pair.pair, pair.radians) == (i, pytest.approx(radians, rel=1e-9))
        assert pair.positions_per_turn == pytest.approx(2 * np.pi / radians, rel=1e-9)
        assert (pair.cosine, pair.sine) == pytest.approx((np.cos(36 * radians), np.sin(36 * radians)), abs=1e-6)


def test_only_new_tokens_are_computed(france: Walk) -> None:
    assert [(each.position, each.computed, each.context) for each in france.new_tokens] == [
        (37, 37, 37),
        (38, 1, 38),
        (39, 1, 39),
    ]


def test_the_lens_is_the_model_after_the_last_layer(llm: LLM, prompt: list[int], france: Walk) -> None:
    """Bit by bit; and what it says there is the model's own distribution. It begins with the embedding."""
    last: list[Any] = []
    first: list[Any] = []
    pages = list(range(llm.runner.kv.num_pages))

    def tap(name: str, layer: int, array: Any) -> None:
        if (name, layer) == ("ffn_residual", 29):
            last.append(array[-2:].copy())
        if name == "embed":
            first.append(array[-1:].copy())

    logits = llm.runner.step_open(make_batch([Piece(0, prompt, pages)]), tap)[0].copy()
    again = end_of_forward(llm.runner, last[0])
    np.testing.assert_array_equal(again[1], logits)
    assert (again[0] != logits).any()
    assert france.forward.embedding_lens.guesses[0].id == end_of_forward(llm.runner, first[0])[0].argmax()
    guesses = france.forward.layers[-1].lens.guesses
    candidates = france.new_tokens[0].choices[0].candidates
    assert [each.id for each in guesses] == [each.id for each in candidates[: len(guesses)]]
    assert guesses[0].probability == pytest.approx(candidates[0].probabilities["model"], rel=1e-12)


def check_choice(choice: Choice, logits: Any, settings: WalkSettings) -> None:
    """Against temperature and nucleus written by sorting, in float64."""
    z = logits.astype(np.float64)
    model = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    scaled = (z - z.max()) / choice.temperature
    warm = np.exp(scaled) / np.exp(scaled).sum()
    order = np.argsort(-warm, kind="stable")
    kept = order[: int(np.searchsorted(np.cumsum(warm[order]), settings.top_p)) + 1]
    steps = {step.name: step for step in choice.steps}
    assert steps["top_p"].kept == len(kept)
    assert steps["top_p"].mass == pytest.approx(warm[kept].sum(), rel=1e-5)
    assert [name for name, step in steps.items() if step.changed] == ["temperature", "top_p"]
    for each in choice.candidates:
        assert each.logit == logits[each.id]
        assert each.rank == 1 + np.count_nonzero(model > model[each.id])
        assert each.probabilities["model"] == pytest.approx(model[each.id], rel=1e-9)
        assert each.probabilities["temperature"] == pytest.approx(warm[each.id], rel=1e-4)
        last = warm[each.id] / warm[kept].sum() if each.id in kept else 0.0
        assert each.probabilities["min_p"] == pytest.approx(last, rel=1e-4)
        assert each.noise is not None
        if last > 0:
            assert each.total == pytest.approx(np.log(last) + each.noise, abs=1e-4)
        else:
            assert each.total is None


def test_a_choice_is_what_the_formulas_say(llm: LLM, prompt: list[int]) -> None:
    seen = through(llm, prompt, temperatures=(0.9, 1.4, 0.3), max_tokens=1)
    logits = llm.runner.step(make_batch([Piece(0, prompt, list(range(llm.runner.kv.num_pages)))]))[0].copy()
    choices = seen.new_tokens[0].choices
    assert [choice.temperature for choice in choices] == [0.9, 1.4, 0.3]
    for choice in choices:
        check_choice(choice, logits, seen.settings)
        totals = {each.id: each.total for each in choice.candidates if each.total is not None}
        assert max(totals, key=lambda i: totals[i]) == choice.winner.id
        if choice.runner_up is not None:
            del totals[choice.winner.id]
            assert max(totals, key=lambda i: totals[i]) == choice.runner_up.id
    # Side by side: the same candidates, the same noise.
    rows = list(zip(*(choice.candidates for choice in choices), strict=True))
    assert all(len({(each.id, each.noise, each.logit) for each in row}) == 1 for row in rows)


def test_other_temperatures_choose_what_a_generation_with_them_would(llm: LLM, prompt: list[int]) -> None:
    for choice in through(llm, prompt, temperatures=(0.1, 0.9, 3.0), max_tokens=1, seed=11).new_tokens[0].choices:
        params = SamplingParams(temperature=choice.temperature, top_p=0.9, seed=11, max_tokens=1)
        assert llm.generate(prompt, params)[0].outputs[0].token_ids == [choice.winner.id]


def test_a_step_at_its_neutral_value_does_nothing(llm: LLM, prompt: list[int]) -> None:
    seen = through(llm, prompt, temperatures=(1.0,), top_p=1.0, max_tokens=1)
    for step in seen.new_tokens[0].choices[0].steps:
        assert (step.touched, step.kept) == (0, 49_152)
        assert step.mass == pytest.approx(1, abs=1e-12)


def test_penalties_touch_the_tokens_of_the_text(llm: LLM, prompt: list[int]) -> None:
    seen = through(llm, prompt, repetition_penalty=1.3)
    for number, token in enumerate(seen.new_tokens):
        steps = {step.name: step for step in token.choices[0].steps}
        assert steps["penalties"].touched == len({*prompt, *(each.id for each in seen.new_tokens[:number])})
        assert steps["logit_bias"].touched == steps["masks"].touched == 0
        assert steps["top_p"].touched == 49_152 - steps["top_p"].kept


@pytest.mark.parametrize("temperature", [0.0, 1e-300])
def test_greedy_draws_nothing(llm: LLM, prompt: list[int], temperature: float) -> None:
    """Also at a temperature that is 0 in float32."""
    choice = through(llm, prompt, temperatures=(temperature,), max_tokens=1).new_tokens[0].choices[0]
    assert choice.greedy
    assert not any(step.changed for step in choice.steps)
    assert choice.winner == choice.candidates[0]
    assert all(each.noise is None and each.total is None for each in choice.candidates)
    assert choice.runner_up is not None
    assert choice.runner_up.rank == 2


def test_times_are_ledgers_of_the_first_two_passes(
    llm: LLM, prompt: list[int], weight_bytes: dict[str, int], limits: MachineLimits
) -> None:
    measured = TimesWanted(weight_bytes, limits)
    seen = walk(llm.runner, llm.tokenizer, prompt, SETTINGS, measure=measured)
    assert seen.times is not None
    assert seen.times.decode is not None
    assert (seen.times.prefill.tokens, seen.times.prefill.context) == (37, 37)
    assert (seen.times.decode.tokens, seen.times.decode.context) == (1, 38)
    for ledger in (seen.times.prefill, seen.times.decode):
        assert {row.name for row in ledger.rows} == {"handover", *taps_of(llm.runner.config)}
    without = dataclasses.replace(seen, times=None)
    assert without == walk(llm.runner, llm.tokenizer, prompt, SETTINGS)  # a pure function of its arguments
    one = walk(llm.runner, llm.tokenizer, prompt, dataclasses.replace(SETTINGS, max_tokens=1), measure=measured)
    assert one.times is not None
    assert one.times.decode is None


def test_memory_for_the_lens_is_asked_for_first(llm: LLM, prompt: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    needed = lens_bytes(llm.runner, 31)
    assert needed > 31 * 4 * 49_152  # the logits of the embedding and 30 layers
    monkeypatch.setattr(available, "available_bytes", lambda: needed - 1)
    with pytest.raises(CapacityError, match=f"the lens over 31 rows takes {needed:,} bytes, and {needed - 1:,}"):
        through(llm, prompt)


def test_what_cannot_be_walked_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="the prompt is empty") as error:
        through(llm, [])
    assert error.value.field == "prompt"
    with pytest.raises(InvalidRequestError, match=f"has {LONGEST_PROMPT + 1} tokens; a walk shows {LONGEST_PROMPT}"):
        through(llm, [5] * (LONGEST_PROMPT + 1))
    with pytest.raises(CapacityError, match="the context holds 4096"):
        through(llm, [5] * 4096)
    for count in (0, 4):
        with pytest.raises(InvalidRequestError, match=f"there are {count} temperatures; 1 to 3") as error:
            dataclasses.replace(SETTINGS, temperatures=(0.5,) * count)
        assert error.value.field == "temperature"
    with pytest.raises(InvalidRequestError, match="temperature is -1"):
        dataclasses.replace(SETTINGS, temperatures=(0.5, -1.0))
    with pytest.raises(InvalidRequestError, match="max_tokens is 0"):
        dataclasses.replace(SETTINGS, max_tokens=0)


def records(kind: Any, found: dict[str, type]) -> dict[str, type]:
    """All records that a record is made of, by name."""
    own = ("cutaway.audit.walk", "cutaway.audit.lens")
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__module__.startswith(own):
        found[kind.__name__] = kind
        for hint in get_type_hints(kind).values():
            records(hint, found)
    for argument in get_args(kind):
        records(argument, found)
    return found


def test_every_key_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    documented = {
        title: set(re.findall(r"^\| `(\w+)` \| \S", table, re.MULTILINE))
        for title, table in re.findall(r"^### (\w+)\n(.*?)(?=^###|\Z)", text, re.MULTILINE | re.DOTALL)
    }
    assert documented == {
        name: {field.name for field in dataclasses.fields(kind)} for name, kind in records(Walk, {}).items()
    }


def test_the_json_is_the_records(france: Walk) -> None:
    data = json.loads(json.dumps(walk_dict(france), allow_nan=False))
    assert set(data) == {field.name for field in dataclasses.fields(Walk)}
    assert data["new_tokens"][0]["choices"][0]["winner"]["probabilities"] == dict(
        france.new_tokens[0].choices[0].winner.probabilities
    )
    assert data["forward"]["layers"][5]["attention"]["heads"][4]["strongest"][0]["id"] in {
        token.id for token in france.prompt
    }
    assert data["times"] is None
