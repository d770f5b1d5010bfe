"""Parity on SmolLM2: derived budgets hold and are near, a wrong bit is found where it is, transformers agrees."""

import ctypes
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cutaway.audit.parity.against import AGAINST, ask_transformers, check_interpreter, compare, float32_limit
from cutaway.audit.parity.parity import Parity, measure_parity
from cutaway.audit.parity.streams import Streams
from cutaway.engine.runner import ModelRunner
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.formats.gguf import open_gguf
from cutaway.model.records import Model
from cutaway.model.reference import load_reference
from cutaway.model.shapes import LAYER_TAPS, STEP_TAPS, taps_of
from cutaway.ops.cpu.tiles import TILE_FORMATS
from cutaway.ops.cpu.tiles.q4_1 import SCALE
from support.long import LONG
from support.tiny_families import CASES, PROMPTS, write_case
from support.tiny_llama import TinySizes, write_tiny_llama

FIXTURE = Path(__file__).parents[1] / "fixtures" / "smollm2_hidden.npz"


@pytest.fixture(scope="module")
def exact(smollm2_path: Path) -> Iterator[Model]:
    with open_gguf(smollm2_path) as gguf:
        yield load_reference(gguf)[1]


class Tiny(NamedTuple):
    runner: ModelRunner
    exact: Model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """Three layers in Q4_1: quick, where SmolLM2 has nothing to add."""
    sizes = TinySizes(num_layers=3, width=256, ffn_width=256 * 3)
    path = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", sizes, formats=("Q4_1",))
    with open_gguf(path) as gguf, ModelRunner(gguf, threads=2, context=64) as runner:
        yield Tiny(runner, load_reference(gguf)[1])


TINY_IDS = [1, 5, 9, 40, 41, 42, 7, 3, 3, 60, 61, 2, 8]


@pytest.fixture(scope="module")
def hidden() -> dict[str, Any]:
    with np.load(FIXTURE, allow_pickle=False) as found:
        return {name: np.array(found[name]) for name in found.files}


@pytest.fixture(scope="module")
def ids(hidden: dict[str, Any]) -> list[int]:
    found: list[int] = hidden["ids"].tolist()
    return found


@pytest.fixture(scope="module")
def measured(runner: ModelRunner, exact: Model, ids: list[int]) -> tuple[Parity, Streams]:
    streams = Streams(runner.config.num_layers)
    return measure_parity(runner, exact, ids, streams=streams), streams


def test_every_operation_is_there_in_order_and_within_its_budget(
    runner: ModelRunner, measured: tuple[Parity, Streams]
) -> None:
    found, _ = measured
    present = taps_of(runner.config)
    before, after = ("embed", "add_positions", "rope_angles"), list(STEP_TAPS)[3:]
    expected = [(name, -1) for name in before]
    expected += [(name, layer) for layer in range(runner.config.num_layers) for name in LAYER_TAPS]
    expected += [(name, -1) for name in after]
    assert [(each.name, each.layer) for each in found.operations] == [each for each in expected if each[0] in present]
    assert found.first_over is None
    assert found.same_bits


def test_what_is_derived_is_what_comes(measured: tuple[Parity, Streams]) -> None:
    """The expected errors are no mere bounds: where roundings are many, they are met within a factor of four; what
    is exact is exact.
    """
    for each in measured[0].operations:
        assert each.rms <= 1.25 * each.expected, each
        if each.name in ("embed", "take_rows"):
            assert each.worst == 0
        elif each.name.endswith("_input") or each.name in ("qkv", "gate_up", "down", "attention_output", "logits"):
            assert each.expected / 4 < each.rms, each


def test_the_distance_is_what_the_roundings_to_int8_add_up_to(measured: tuple[Parity, Streams]) -> None:
    stream = measured[0].residual()
    assert stream[0].distance == 0.0
    for each in stream[1:]:
        assert each.distance_expected is not None
        assert 1 / 3 < each.distance / each.distance_expected < 3, each
    assert stream[-1].distance > 2 * stream[1].distance


def test_the_end(measured: tuple[Parity, Streams]) -> None:
    """The divergence is the second-order one of the logits' distance: neither far more, nor nothing."""
    end = measured[0].end
    assert 0 < end.kl_mean < 3 * end.kl_expected < 0.1
    assert end.kl_mean <= end.kl_greatest
    assert end.same_top > 0.9
    assert abs(math.log(end.perplexity_engine / end.perplexity_reference)) < 0.05


def test_a_text_of_several_steps_is_the_same_text(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured does not depend on how the text is cut."""
    whole = measure_parity(*tiny, TINY_IDS)
    monkeypatch.setattr("cutaway.audit.parity.parity.CHUNK", 5)
    cut = measure_parity(*tiny, TINY_IDS)
    assert whole.first_over is cut.first_over is None
    for one, other in zip(cut.operations, whole.operations, strict=True):
        assert (one.name, one.layer) == (other.name, other.layer)
        assert (one.rms, one.distance) == pytest.approx((other.rms, other.distance), rel=1e-6, abs=1e-12)
    assert cut.end.kl_mean == pytest.approx(whole.end.kl_mean, rel=1e-6)


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "int8"])
def test_other_caches(tiny: Tiny, kv_dtype: str) -> None:
    found = measure_parity(*tiny, TINY_IDS, kv_dtype=kv_dtype)
    assert found.first_over is None
    written = [each.rms for each in found.operations if each.name == "kv_write"]
    least, most = {"f32": (0.0, 0.0), "f16": (1e-4, 1e-3), "int8": (1e-3, 1e-1)}[kv_dtype]
    assert all(least <= each <= most for each in written), written


def test_one_flipped_bit_of_one_scale_is_the_first_over_its_budget(tiny: Tiny) -> None:
    """The control of the shadow check's own test: the lowest bit of one float16 scale in a tile of Q4_1."""
    down = tiny.runner.loaded.record.layers[1, 6]
    assert down["tile_bytes"] == tiny.runner.config.ffn_width // 32 * 320, "not Q4_1"
    scale = ctypes.c_uint16.from_address(int(down["tiles"]) + 3 * int(down["tile_bytes"]) + 20 * 320 + SCALE + 2 * 5)
    scale.value ^= 1
    try:
        found = measure_parity(*tiny, TINY_IDS)
    finally:
        scale.value ^= 1
    assert found.first_over is not None
    assert (found.first_over.name, found.first_over.layer) == ("down", 1)
    assert [each for each in found.operations if not each.within] == [found.first_over]


FORMATS: dict[str, dict[str, Any]] = {
    "qwen2": {"architecture": "qwen2", "formats": ("Q6_K", "Q5_0", "Q4_K", "Q5_1", "Q5_K", "Q8_0", "Q4_1", "Q4_0")},
    "2 to 4 bits": {"formats": ("Q2_K", "IQ4_NL", "Q3_K", "IQ4_XS"), "tied": False},
    "not quantised": {"formats": ("BF16", "F32", "F16"), "tied": False},
}


def assert_within(path: Path, kv_dtype: str) -> None:
    """And the distance from float64 is some times what the roundings add up to, in a model of random numbers, too."""
    ids = list(PROMPTS.values())[5]
    with open_gguf(path) as gguf, ModelRunner(gguf, threads=1, context=64) as runner:
        found = measure_parity(runner, load_reference(gguf)[1], ids, kv_dtype=kv_dtype)
    assert found.first_over is None
    assert found.same_bits
    last = found.residual()[-1]
    assert last.distance_expected is not None
    assert 0.5 < last.distance / last.distance_expected < 5


@pytest.mark.parametrize("name", CASES)
def test_budgets_hold_for_every_family(tmp_path: Path, name: str) -> None:
    assert_within(write_case(tmp_path / "tiny.gguf", name), "f16")


def test_caps_far_above_what_they_cap(tmp_path: Path) -> None:
    """The caps of Gemma 2's own files: what they round is a part of the cap, however small the numbers are."""
    changes = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 300.0}
    assert_within(write_case(tmp_path / "tiny.gguf", "gemma2", **changes), "f16")


@pytest.mark.skipif(not LONG, reason="it compiles kernels of every format: CUTAWAY_LONG_TESTS=1")
@pytest.mark.parametrize("name", FORMATS)
def test_budgets_hold_for_every_block_format(tmp_path: Path, name: str) -> None:
    sizes = TinySizes(num_layers=3, width=256, ffn_width=256 * 3)
    assert_within(write_tiny_llama(tmp_path / "tiny.gguf", sizes, **FORMATS[name]), "int8")


def test_every_block_format_is_there() -> None:
    assert {each for options in FORMATS.values() for each in options["formats"]} == set(TILE_FORMATS)


def test_a_definition_that_is_none_is_over_everywhere(tiny: Tiny) -> None:
    """A number that is no number keeps to no budget."""
    record = tiny.exact
    norms = record.ffn_norm.copy()
    norms[1] = norms[1]._replace(weight=norms[1].weight * np.nan)
    found = measure_parity(tiny.runner, record._replace(ffn_norm=norms), TINY_IDS)
    assert found.first_over is not None
    assert (found.first_over.name, found.first_over.layer) == ("ffn_norm", 1)


def test_texts_that_are_too_short_or_too_long_are_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutaway.audit.parity.parity.LONGEST_TEXT", 10)
    for ids, said in ((TINY_IDS[:1], "1 tokens.*longer"), (TINY_IDS, "13 tokens.*2 to 10.*shorter")):
        with pytest.raises(InvalidRequestError, match=said):
            measure_parity(*tiny, ids)


def test_the_stream_is_transformers_within_its_own_error(
    measured: tuple[Parity, Streams], hidden: dict[str, Any], runner: ModelRunner
) -> None:
    """Float64 beside transformers' hidden states: as near as transformers' own float64 is, and a little."""
    _, streams = measured
    for number, (layer, error) in enumerate(zip(hidden["layers"], hidden["residual_error"], strict=True)):
        ours, theirs = streams.definition[layer], hidden["residual"][number]
        apart = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
        assert math.sqrt((apart**2).mean()) <= 1.5 * error + 1e-7, int(layer)
        assert error <= float32_limit(runner.config, int(layer))
    logits = np.take_along_axis(streams.definition[-1], hidden["candidates"], axis=1)
    apart = np.linalg.norm(logits - hidden["logits"], axis=1) / np.linalg.norm(hidden["logits"], axis=1)
    assert math.sqrt((apart**2).mean()) <= 2 * float(hidden["logits_error"]) + 1e-7


def as_found(streams: Streams) -> dict[str, Any]:
    """As if transformers had given what the definition has."""
    return {
        "residual": np.stack([each.astype(np.float32) for each in streams.definition[:-1]]),
        "logits": streams.definition[-1].astype(np.float32),
        "versions": np.array("a double"),
    }


def test_comparing_finds_the_first_layer_that_differs(runner: ModelRunner, measured: tuple[Parity, Streams]) -> None:
    _, streams = measured
    found = as_found(streams)
    assert compare(streams, found, runner.config).first_over is None
    found["residual"][12:] *= np.float32(1.001)
    first = compare(streams, found, runner.config).first_over
    assert first is not None
    assert (first.name, first.layer) == ("ffn_residual", 11)


def test_another_model_is_not_compared(runner: ModelRunner, measured: tuple[Parity, Streams]) -> None:
    found = as_found(measured[1])
    with pytest.raises(CutawayError, match="not the same model"):
        compare(measured[1], {**found, "residual": found["residual"][1:]}, runner.config)


def write_interpreter(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_an_interpreter_without_transformers_is_told(tmp_path: Path, smollm2_path: Path) -> None:
    (tmp_path / "said").write_text(json.dumps({"missing": "torch"}))
    python = write_interpreter(tmp_path / "python", f"cat '{tmp_path / 'said'}'")
    said = rf"torch is not installed in {python}\..*pip install torch {AGAINST} gguf.*--python"
    with pytest.raises(InvalidRequestError, match=said):
        ask_transformers(smollm2_path, [1, 2], python)
    with pytest.raises(InvalidRequestError, match=said):
        check_interpreter(smollm2_path, python)


def test_a_process_that_dies_is_told(tmp_path: Path, smollm2_path: Path) -> None:
    python = write_interpreter(tmp_path / "python", "echo 'no memory' >&2; exit 9")
    with pytest.raises(CutawayError, match=r"ended with code 9 and no answer: no memory"):
        ask_transformers(smollm2_path, [1, 2], python)
    with pytest.raises(CutawayError, match=r"can't be started"):
        ask_transformers(smollm2_path, [1, 2], tmp_path / "nowhere")
