"""Taps on small random models of each family: every name, its shape, its type and its bits; and nobody notices."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from cutaway import SamplingParams, TapRequest
from cutaway.audit.taps.tensors import QUANTIZED, SUMS, tap_tensors
from cutaway.engine.outputs import RequestOutput
from cutaway.errors import ComputationError, InvalidRequestError
from cutaway.memory.kv_cache import kv_format
from cutaway.model.shapes import LAYER_TAPS, TAPS, evaluate
from support.bits import differing
from support.pools import stored
from support.tapped import Rows, TappedEngine, mates, spoil_a_score, tapped_engine, whole_run
from support.tiny_families import CASES, write_case

PROMPT = [(11 * i * i + 5) % 211 for i in range(30)]  # beyond a step of 24 tokens and a window of 29
PARAMS = SamplingParams(temperature=1.0, seed=3, max_tokens=7, logprobs=2)
EVERYTHING = TapRequest(*(f"{each.name}@all" for each in tap_tensors(kv_format("f16")).values()))


class Tapped(NamedTuple):
    engine: TappedEngine
    output: RequestOutput
    whole: Rows


@pytest.fixture(scope="module", params=CASES)
def tapped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tapped]:
    """One request whose everything is tapped, among fifteen others."""
    path = write_case(tmp_path_factory.mktemp("tiny") / "tiny.gguf", request.param)
    with tapped_engine(path) as engine:
        others = mates(engine.runner.vocab_size, 15)
        closed = [engine.ask(ids, PARAMS) for ids in [PROMPT, *others]]
        engine.run()
        engine.core.scheduler.reset_prefix_cache()
        one = engine.ask(PROMPT, PARAMS, EVERYTHING)
        rest = [engine.ask(ids, PARAMS) for ids in others]
        engine.run()
        for before, now in zip(closed, [one, *rest], strict=True):
            assert now.error is None
            assert now.output().outputs == before.output().outputs, "tokens and logprobs, to the bit"
        output = one.output()
        yield Tapped(engine, output, whole_run(engine.runner, [*PROMPT, *output.outputs[0].token_ids[:-1]]))


def test_every_operation_has_the_declared_shape_and_type_and_the_bits_of_a_whole_run(tapped: Tapped) -> None:
    taps, config = tapped.output.taps, tapped.engine.runner.config
    assert taps is not None
    n = len(PROMPT) + PARAMS.max_tokens - 1
    sizes = {**tapped.engine.runner.dimensions, "T": n, "O": n, "Vt": config.vocab_size}
    compared = 0
    for name, symbolic in TAPS.items():
        source = QUANTIZED.get(name, name)
        shape = tuple(evaluate(entry, sizes) for entry in TAPS[source])
        for layer in range(config.num_layers) if name in LAYER_TAPS else [-1]:
            found = taps[f"layers.{layer}.{name}" if layer >= 0 else name]
            assert found.values.shape == shape, (name, symbolic)
            assert found.values.dtype == (np.int8 if name in QUANTIZED else np.float32)
            assert found.positions.tolist() == list(range(n))
            assert differing(found.values, tapped.whole[name, layer][: shape[0], : shape[1]]) == 0, (name, layer)
            compared += 1
    assert compared == len(TAPS) - len(LAYER_TAPS) + len(LAYER_TAPS) * config.num_layers


def test_what_a_quantised_input_has_beside_it(tapped: Tapped) -> None:
    taps = tapped.output.taps
    assert taps is not None
    for name, source in QUANTIZED.items():
        prefix = "" if name == "head_input" else "layers.1."
        q, scale, total, scaled = (
            taps[f"{prefix}{name}{part}"].values for part in ("", ".scale", ".block_sum", ".scaled_sum")
        )
        blocks = q.reshape(len(q), -1, 32)
        np.testing.assert_array_equal(total, blocks.sum(2, np.int32))
        assert total.dtype == np.int32
        np.testing.assert_array_equal(scaled, scale * total.astype(np.float32))
        exact = taps[f"{prefix}{source}"].values.reshape(blocks.shape)
        assert (np.abs(blocks * scale[..., None] - exact) <= 0.5001 * scale[..., None]).all(), name


def test_keys_and_values_are_those_that_were_written(tapped: Tapped) -> None:
    taps, config = tapped.output.taps, tapped.engine.runner.config
    assert taps is not None
    H, Hkv, Dh = config.num_heads, config.num_kv_heads, config.head_dim
    for layer in range(config.num_layers):
        heads = tapped.whole["kv_write", layer].reshape(-1, H + 2 * Hkv, Dh).astype(np.float16)
        for name, first in (("kv.keys", H), ("kv.values", H + Hkv)):
            found = taps[f"layers.{layer}.{name}"]
            assert found.values.dtype == np.float16
            np.testing.assert_array_equal(found.values, heads[:, first : first + Hkv])


def test_attention_is_what_the_definition_says(tapped: Tapped) -> None:
    """In float64, of the tapped queries and keys; and the weights' rows sum to 1."""
    taps, config = tapped.output.taps, tapped.engine.runner.config
    assert taps is not None
    H, Dh, n = config.num_heads, config.head_dim, len(PROMPT) + PARAMS.max_tokens - 1
    back = np.arange(n)[:, None] - np.arange(n)  # how far before a row's position a column is
    for layer in range(config.num_layers):
        scores, weights = (taps[f"layers.{layer}.attn.{name}"].values for name in ("scores", "weights"))
        assert scores.shape == weights.shape == (n, H, n)
        assert scores.dtype == weights.dtype == np.float32
        queries = taps[f"layers.{layer}.rope"].values[:, : H * Dh].reshape(n, H, Dh).astype(np.float64)
        keys = taps[f"layers.{layer}.kv.keys"].values.astype(np.float64).repeat(H // config.num_kv_heads, axis=1)
        exact = np.einsum("thd,chd->thc", queries, keys) * config.attention_scale
        if config.attention_cap:
            exact = config.attention_cap * np.tanh(exact / config.attention_cap)
        window = config.windows[layer] or n
        attended = np.broadcast_to(((back >= 0) & (back < window))[:, None], scores.shape)
        assert (np.isneginf(scores) == ~attended).all()
        np.testing.assert_allclose(scores[attended], exact[attended], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(weights.sum(2, np.float64), 1, atol=1e-6)
        assert (weights[~attended] == 0).all()
        values = taps[f"layers.{layer}.kv.values"].values.astype(np.float64).repeat(H // config.num_kv_heads, axis=1)
        mixed = np.einsum("thc,chd->thd", weights, values).reshape(n, -1)
        np.testing.assert_allclose(mixed, taps[f"layers.{layer}.attention"].values, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_case(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "gemma3")


def test_int8_keys_have_their_scales(tiny: Path) -> None:
    names = ("kv.keys", "kv.key_scales", "kv.values", "kv.value_scales", "kv_write")
    with tapped_engine(tiny, kv_dtype="int8") as engine:
        config = engine.runner.config
        asking = engine.ask(PROMPT, PARAMS, TapRequest(*names))
        engine.run()
        taps = asking.output().taps
    assert taps is not None
    H, Hkv, Dh = config.num_heads, config.num_kv_heads, config.head_dim
    keys, key_scales, values, value_scales, written = (taps[f"layers.2.{name}"].values for name in names)
    heads = written.reshape(-1, H + 2 * Hkv, Dh)
    assert (keys.dtype, key_scales.dtype) == (np.int8, np.float32)
    np.testing.assert_array_equal(
        keys.astype(np.float64) * key_scales[..., None], stored(heads[:, H : H + Hkv], "int8")
    )
    np.testing.assert_array_equal(
        values.astype(np.float64) * value_scales[..., None], stored(heads[:, H + Hkv :], "int8")
    )


def rows(taps: Any, name: str) -> list[int]:
    return taps[name].positions.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("places", ["36", "0,36", "0,40-50", "all,5-2", "0,steps:7", "0,steps:3-1", "prompt,\u0661"])
def test_no_place_is_dropped_silently(tiny: Path, places: str) -> None:
    """That lies beyond the request, or behind its own end; amid others that select something."""
    said = "has the places" if "\u0661" in places else "selects no position"
    wrong = re.escape(repr(places.split(",")[-1]) if "," in places else places)
    with tapped_engine(tiny) as engine, pytest.raises(InvalidRequestError, match=wrong) as error:
        engine.ask(PROMPT, PARAMS, TapRequest(f"embed@{places}"))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "keys", "positions"),
    [
        ("layers.3.resid@generated", ["layers.3.ffn_residual"], range(30, 36)),
        ("layers.0-1.qkv@prompt", ["layers.0.qkv", "layers.1.qkv"], range(30)),
        ("layers.0,2.down@steps:0", ["layers.0.down", "layers.2.down"], range(30)),
        ("layers.6.down@steps:1-3", ["layers.6.down"], range(30, 33)),
        ("layers.6.down@step:2,4,7-9", ["layers.6.down"], [4, 7, 8, 9, 31]),
        ("logits", ["logits"], range(29, 36)),
        ("logits@3-5,generated", ["logits"], [3, 4, 5, *range(30, 36)]),
        ("output_norm@0", ["output_norm"], [0]),
        ("embed@35-99", ["embed"], [35]),
    ],
)
def test_what_is_selected(tiny: Path, text: str, keys: list[str], positions: Any) -> None:
    with tapped_engine(tiny) as engine:
        asking = engine.ask(PROMPT, PARAMS, TapRequest(text))
        engine.run()
        output = asking.output()
        whole = whole_run(engine.runner, [*PROMPT, *output.outputs[0].token_ids[:-1]])
        assert output.taps is not None
        assert list(output.taps) == keys
        for key in keys:
            found = output.taps[key]
            assert found.positions.tolist() == list(positions)
            name = key.rpartition(".")[2]
            layer = int(key.split(".")[1]) if "." in key else -1
            want = whole[name, layer][list(positions), : found.values.shape[1]]
            assert differing(found.values, want) == 0
        plan = TapRequest(text).plan(engine.runner, len(PROMPT), 7)
        assert plan.num_bytes == sum(found.values.nbytes for found in output.taps.values())


def test_the_room_is_what_was_announced(tiny: Path) -> None:
    """One array for each tensor, however small its rows are and however many steps there are; nothing is copied."""
    request = TapRequest("attention_input.scale", "attn.weights@generated")
    with tapped_engine(tiny) as engine:
        asking = engine.ask(PROMPT, PARAMS, request)
        engine.run()
        taps, again = asking.output().taps, asking.output().taps
        plan = request.plan(engine.runner, len(PROMPT), PARAMS.max_tokens or 0)
    assert taps is not None
    assert again is not None
    rooms = {}
    for name in taps:
        assert np.shares_memory(taps[name].values, again[name].values)
        room = taps[name].values
        while isinstance(room.base, np.ndarray):
            room = room.base
        rooms[id(room)] = room.nbytes
    assert len(rooms) == len(taps) == 2 * engine.runner.config.num_layers
    assert sum(rooms.values()) == plan.num_bytes


def test_aliases(tiny: Path) -> None:
    with tapped_engine(tiny) as engine:
        asking = engine.ask(PROMPT, PARAMS, TapRequest("layers.2.resid", "layers.2.ffn_residual@5"))
        engine.run()
        taps = asking.output().taps
        assert taps is not None
        assert len(taps) == 1
        assert taps["layers.2.resid"].positions.tolist() == list(range(36))
        with pytest.raises(KeyError):
            taps["layers.1.resid"]


def test_preempted_and_watched_again_nothing_is_seen_twice(tiny: Path) -> None:
    """A pool for the longest request and little more: the tapped one, which is the youngest, is preempted."""
    with tapped_engine(tiny, num_blocks=8, context=64) as engine:
        params = SamplingParams(temperature=1.0, seed=3, max_tokens=30)
        olds = [engine.ask([7, number], replace(params, max_tokens=45)) for number in range(3)]
        young = engine.ask(PROMPT, params, TapRequest("layers.1.attention", "logits@all"))
        engine.run()
        assert engine.core.scheduler.num_preemptions > 0
        output = young.output()
        assert output.taps is not None
        ids = [*PROMPT, *output.outputs[0].token_ids[:-1]]
        whole = whole_run(engine.runner, ids)
        for key, name in (("layers.1.attention", ("attention", 1)), ("logits", ("logits", -1))):
            found: npt.NDArray[Any] = output.taps[key].values
            assert output.taps[key].positions.tolist() == list(range(len(ids)))
            assert differing(found, whole[name][:, : found.shape[1]]) == 0
        assert all(len(each.output().outputs[0].token_ids) == 45 for each in olds)


@pytest.mark.parametrize(("n", "num_blocks"), [(3, 64), (6, 9), (20, 64)])
def test_several_answers_have_rows_of_their_own(tiny: Path, n: int, num_blocks: int) -> None:
    """The prompt's are there once. In a small pool answers are preempted; beyond 16 there are no rows for all at once,
    and the others compute the prompt again.
    """
    params = replace(PARAMS, n=n)
    taps = TapRequest(
        "layers.1.attention", "layers.3.resid", "layers.0.kv.keys", "attn.weights@generated", "logits@all"
    )
    with tapped_engine(tiny, num_blocks=num_blocks, context=64) as engine:
        plain, mate = engine.ask(PROMPT, params), engine.ask([5, 6, 7], PARAMS)
        engine.run()
        tapped, beside = engine.ask(PROMPT, params, taps), engine.ask([5, 6, 7], PARAMS)
        engine.run()
        assert (engine.core.scheduler.num_preemptions > 0) == (num_blocks < 64)
        output = tapped.output()
        assert output.outputs == plain.output().outputs
        assert beside.output().outputs == mate.output().outputs
        found, runner = output.taps, engine.runner
        assert found is not None
        assert len({tuple(each.token_ids) for each in output.outputs}) > 1, "they differ, or this shows little"
        config = runner.config
        H, Hkv, Dh = config.num_heads, config.num_kv_heads, config.head_dim
        compared = 0
        for choice, each in enumerate(output.outputs):
            whole = whole_run(runner, [*PROMPT, *each.token_ids[:-1]])
            whole["kv.keys", 0] = whole["kv_write", 0].reshape(-1, H + 2 * Hkv, Dh)[:, H : H + Hkv].astype(np.float16)
            for name, layer in (("attention", 1), ("ffn_residual", 3), ("kv.keys", 0), ("logits", -1)):
                key = name if layer < 0 else f"layers.{layer}.{name}"
                for which, positions in ((key, range(30)), (f"choices.{choice}.{key}", range(30, 36))):
                    assert rows(found, which) == list(positions)
                    values = found[which].values
                    want = whole[name, layer][list(positions)]
                    if name == "kv.keys":
                        np.testing.assert_array_equal(values, want)
                    else:
                        assert differing(values, want[:, : values.shape[1]]) == 0, which
                    compared += 1
            weights = found[f"choices.{choice}.layers.2.attn.weights"]
            np.testing.assert_allclose(weights.values.sum(2, np.float64), 1, atol=1e-6)
            assert rows(found, f"choices.{choice}.layers.3.resid") == list(range(30, 36)), "by its alias, too"
        assert compared == 8 * n
        assert len(found) == 4 + n * (4 + config.num_layers)
        plan = taps.plan(runner, len(PROMPT), PARAMS.max_tokens, n)
        assert plan.num_bytes == sum(each.values.nbytes for each in found.values())


def test_a_step_that_failed_is_not_seen(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tapped_engine(tiny) as engine:
        asking = engine.ask(PROMPT, PARAMS, TapRequest("layers.1.attention", "logits"))
        step_tapped, calls = engine.runner.step_tapped, []

        def fails_once(*arguments: Any) -> Any:
            calls.append(len(arguments[0].tokens))
            logits = step_tapped(*arguments)
            if len(calls) in (1, 4):
                raise MemoryError("of the test")
            return logits

        monkeypatch.setattr(engine.runner, "step_tapped", fails_once)
        while engine.core.has_work:
            with suppress(MemoryError):
                engine.core.step()
        assert calls == [24, 24, 6, 1, 1, 1, 1, 1, 1, 1]
        taps = asking.output().taps
        assert taps is not None
        assert rows(taps, "layers.1.attention") == list(range(36))
        assert rows(taps, "logits") == list(range(29, 36))


def test_nothing_of_the_cache_is_read(tiny: Path) -> None:
    with tapped_engine(tiny) as engine:
        engine.ask(PROMPT, PARAMS)
        engine.run()
        hit = engine.ask(PROMPT, PARAMS)
        engine.run()
        tapped = engine.ask(PROMPT, PARAMS, TapRequest("layers.0.resid"))
        engine.run()
        again = engine.ask(PROMPT, PARAMS)
        engine.run()
        assert hit.output().num_cached_tokens > 0
        assert tapped.output().num_cached_tokens == 0
        assert again.output().num_cached_tokens > 0, "others may read what it has computed"
        assert tapped.output().outputs == hit.output().outputs == again.output().outputs


@pytest.mark.parametrize("kv_dtype", ["f32", "int8"])
def test_attention_beyond_a_tile_in_other_types(tiny: Path, kv_dtype: str) -> None:
    """Windows that begin within a tile, several tiles, scales: the scores give attention's bits, or this would fail."""
    ids = [(5 * i + 2) % 211 for i in range(170)]
    with tapped_engine(tiny, kv_dtype=kv_dtype, context=256) as engine:
        asking = engine.ask(ids, PARAMS, TapRequest("attn.weights"))
        engine.run()
        assert asking.error is None
        taps = asking.output().taps
    assert taps is not None
    assert len(taps) == engine.runner.config.num_layers
    for name in taps:
        np.testing.assert_allclose(taps[name].values.sum(2, np.float64), 1, atol=1e-6)


def test_a_wrong_score_is_told_and_ends_its_request_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_a_score(monkeypatch)
    with tapped_engine(tiny) as engine:
        bad = engine.ask(PROMPT, PARAMS, TapRequest("layers.0.attn.scores@20"))
        good, other = engine.ask(PROMPT, PARAMS), engine.ask(PROMPT, PARAMS, TapRequest("logits"))
        engine.run()
        assert isinstance(bad.error, ComputationError)
        assert "attention of layer 0 is wrong" in str(bad.error)
        assert (good.error, other.error) == (None, None)
        assert good.output().outputs == other.output().outputs


DOCS = Path(__file__).parents[2] / "docs" / "taps.md"


def test_the_page_has_every_name_with_its_shape_and_type() -> None:
    tensors = tap_tensors(kv_format("int8"))
    table = re.findall(
        r"^\| (`.+`) \| `\[(.+)\]` \| (.+?) \| (✓?) ?\| ([TO]) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE
    )
    found = {}
    for names, shape, dtype, in_layers, kind in table:
        for name in re.findall(r"`(.+?)`", names):
            found[name] = (tuple(shape.split(", ")), dtype, bool(in_layers), kind == "O")
    assert found.pop("resid") == found["ffn_residual"]
    for name in ("kv.keys", "kv.values"):
        assert found[name][1] == "the cache's"
        found[name] = (found[name][0], "int8", *found[name][2:])
    beside = {f"{name}.{part}" for name in QUANTIZED for part in SUMS}
    assert found == {
        each.name: (each.shape, each.dtype, each.in_layers, each.of_outputs)
        for each in tensors.values()
        if each.name not in beside
    }
    assert beside <= set(tensors)
