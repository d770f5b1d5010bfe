"""A wrong operation is the first beyond its budget, whatever is wrong with it, and none that follows is blamed.

Two kinds: a number that the engine's record has wrong, which its compiled run and its open run share; and one call of
one operation in the open run that does something else, beside which the compiled run's bits differ as well.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from cutaway.audit.parity.parity import Parity, measure_parity
from cutaway.audit.parity.shadow import OUTPUT
from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.model.records import Model
from cutaway.model.reference import load_reference
from cutaway.ops import cpu, reference
from cutaway.ops.cpu.activation import GELU, SILU
from support.tiny_families import PROMPTS, write_case

IDS, LONG_IDS = PROMPTS["prompt 4"], PROMPTS["prompt 6"]
"""17 tokens; 40, beyond the windows."""


class Tiny(NamedTuple):
    runner: ModelRunner
    exact: Model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Tiny]]:
    """A small model of each family, loaded when a test asks for it."""
    folder, loaded = tmp_path_factory.mktemp("tiny"), dict[str, Tiny]()

    def get(case: str) -> Tiny:
        if case not in loaded:
            with open_gguf(write_case(folder / f"{case}.gguf", case)) as gguf:
                loaded[case] = Tiny(ModelRunner(gguf, threads=1, context=64), load_reference(gguf)[1])
        return loaded[case]

    yield get
    for each in loaded.values():
        each.runner.close()


def over(found: Parity) -> list[tuple[str, int]]:
    return [(each.name, each.layer) for each in found.operations if not each.within]


Changes = Callable[[Model], dict[str, Any]]


def each_epsilon(norms: Any, layer: int) -> Any:
    changed = norms.copy()
    changed["epsilon"][layer] *= 2
    return changed


def weights(record: Model, layer: int, target: int, source: tuple[int, int], fields: tuple[str, ...] = ()) -> Any:
    """The layers' weights, of which one has become another, or has the other's fields."""
    changed = record.layers.copy()
    for field in fields or changed.dtype.names:
        changed[field][layer, target] = record.layers[field][source]
    return changed


RECORDS: dict[str, tuple[str, Changes, tuple[str, int]]] = {
    "scale of the embedding": ("gemma3", lambda r: {"embedding_scale": r.embedding_scale * 1.01}, ("embed", -1)),
    "positions one row on": (
        "gpt2",
        lambda r: {"position_rows": np.roll(r.position_rows, 1, 0)},
        ("add_positions", -1),
    ),
    "base of rotary positions": (
        "llama",
        lambda r: {"inverse_frequencies": r.inverse_frequencies**1.001},
        ("rope_angles", -1),
    ),
    "magnitude of rotary positions": (
        "yarn scaling",
        lambda r: {"magnitudes": r.magnitudes * 1.01},
        ("rope_angles", -1),
    ),
    "tables of rotary positions": ("gemma3", lambda r: {"rope_table": 1 - r.rope_table}, ("rope", 0)),
    "layout of pairs": ("llama", lambda r: {"rope_interleaved": not r.rope_interleaved}, ("rope", 0)),
    "part that is turned": ("phi3", lambda r: {"rotary_dim": r.rotary_dim - 2}, ("rope", 0)),
    "scale of scores": ("llama", lambda r: {"attention_scale": r.attention_scale * 1.01}, ("attention", 0)),
    "cap of scores": ("gemma2", lambda r: {"attention_cap": r.attention_cap * 1.01}, ("attention", 0)),
    "window": ("mistral", lambda r: {"windows": r.windows + 1}, ("attention", 0)),
    "window of another layer": ("gemma3", lambda r: {"windows": np.roll(r.windows, 1)}, ("attention", 5)),
    "activation": ("llama", lambda r: {"activation": GELU if r.activation == SILU else SILU}, ("activate", 0)),
    "cap of logits": ("gemma2", lambda r: {"logits_cap": r.logits_cap * 1.01}, ("logits_softcap", -1)),
    "epsilon of a norm": (
        "llama",
        lambda r: {"attention_norm": each_epsilon(r.attention_norm, 1)},
        ("attention_norm", 1),
    ),
    "epsilon of a layer norm": ("gpt2", lambda r: {"ffn_norm": each_epsilon(r.ffn_norm, 2)}, ("ffn_norm", 2)),
    "epsilon of a head's norm": ("gemma3", lambda r: {"key_norm": each_epsilon(r.key_norm, 3)}, ("head_norm", 3)),
    "epsilon of a norm behind attention": (
        "gemma2",
        lambda r: {"attention_post_norm": each_epsilon(r.attention_post_norm, 1)},
        ("attention_post_norm", 1),
    ),
    "epsilon of a norm behind the feed-forward": (
        "gemma2",
        lambda r: {"ffn_post_norm": each_epsilon(r.ffn_post_norm, 1)},
        ("ffn_post_norm", 1),
    ),
    "epsilon of the last norm": (
        "llama",
        lambda r: {"output_norm": each_epsilon(r.output_norm, 0)},
        ("output_norm", -1),
    ),
    "bias": ("qwen2", lambda r: {"layers": weights(r, 1, 1, (1, 3), ("bias",))}, ("qkv", 1)),
    "weights of another layer": ("llama", lambda r: {"layers": weights(r, 1, 3, (2, 3))}, ("attention_output", 1)),
    "gate is up": ("llama", lambda r: {"layers": weights(r, 1, 4, (1, 5))}, ("gate_up", 1)),
    "head is the embedding": ("llama", lambda r: {"head": r.embedding.copy()}, ("logits", -1)),
}


@pytest.mark.parametrize("fault", RECORDS)
def test_a_wrong_number_of_the_record(tiny: Callable[[str], Tiny], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    case, changes, place = RECORDS[fault]
    runner, exact = tiny(case)
    record = runner.loaded.record
    wrong = dataclasses.replace(runner.loaded, record=record._replace(**changes(record)))
    monkeypatch.setattr(runner, "loaded", wrong)
    found = measure_parity(runner, exact, LONG_IDS if place[0] == "attention" else IDS)
    assert found.same_bits
    assert over(found)[0] == place
    assert {name for name, _ in over(found)} == {place[0]}


def test_an_unspoilt_run_keeps_to_all(tiny: Callable[[str], Tiny]) -> None:
    for case in dict.fromkeys([each[0] for each in RECORDS.values()] + [each[0] for each in CALLS.values()]):
        found = measure_parity(*tiny(case), IDS)
        assert (over(found), found.same_bits) == ([], True), case


def test_a_mean_far_above_what_differs_from_it(tiny: Callable[[str], Tiny], monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer norm takes it away, and with it as many digits: no fault of the norm."""
    runner, exact = tiny("gpt2")
    rows = runner.loaded.record.position_rows + np.float32(500)
    moved = dataclasses.replace(runner.loaded, record=runner.loaded.record._replace(position_rows=rows))
    monkeypatch.setattr(runner, "loaded", moved)
    found = measure_parity(runner, exact._replace(position_rows=rows.astype(np.float64)), IDS)
    assert over(found) == []
    (first,) = (each for each in found.operations if (each.name, each.layer) == ("attention_norm", 0))
    assert first.expected / 4 < first.rms <= first.expected


Operation = Callable[..., None]
Fault = Callable[[Operation], Operation]


def given(place: int, change: Callable[[Any], Any]) -> Fault:
    """The operation itself, but for one argument."""

    def spoil(compiled: Operation) -> Operation:
        def run(team: Any, *arguments: Any) -> None:
            changed = list(arguments)
            changed[place] = change(arguments[place])
            compiled(team, *changed)

        return run

    return spoil


def spoilt(place: int, change: Callable[[Any], None]) -> Fault:
    """The operation, and something done to what it wrote."""

    def spoil(compiled: Operation) -> Operation:
        def run(team: Any, *arguments: Any) -> None:
            compiled(team, *arguments)
            change(arguments[place])

        return run

    return spoil


def twice(compiled: Operation) -> Operation:
    """One after the other, over the same arrays."""

    def run(team: Any, *arguments: Any) -> None:
        compiled(team, *arguments)
        compiled(team, *arguments)

    return run


def by_a_hundredth(array: Any) -> None:
    array *= np.float32(1.01)


def swapped_heads(array: Any) -> None:
    """The first two heads, in the place of each other."""
    array[:, :96] = np.roll(array[:, :96], 48, axis=1)


def transposed_head(array: Any) -> None:
    """A head of 48 numbers read as 6 × 8, written as 8 × 6."""
    array[:, :48] = array[:, :48].reshape(-1, 6, 8).swapaxes(1, 2).reshape(-1, 48)


def later(batch: Any) -> Any:
    return batch._replace(positions=batch.positions + 1)


def wider(activation: Any) -> None:
    by_a_hundredth(activation.scale)
    by_a_hundredth(activation.scaled_sum)


# The operation, the number of its call in the step, what is done to it, where it must be seen.
CALLS: dict[str, tuple[str, str, int, Fault, tuple[str, int]]] = {
    "embed: 1 %": ("llama", "embed", 0, spoilt(3, by_a_hundredth), ("embed", -1)),
    "embed: the next token": ("llama", "embed", 0, given(1, lambda tokens: tokens + 1), ("embed", -1)),
    "add_positions: one on": ("gpt2", "add_positions", 0, given(1, lambda each: each + 1), ("add_positions", -1)),
    "rope_angles: one on": ("llama", "rope_angles", 0, given(0, lambda each: each + 1), ("rope_angles", -1)),
    "norm: 1 %": ("llama", "norm", 2, spoilt(2, by_a_hundredth), ("ffn_norm", 0)),
    "quantize_rows: 1 %": ("llama", "quantize_rows", 4, spoilt(1, wider), ("attention_input", 1)),
    "quantize_rows: one column on": (
        "llama",
        "quantize_rows",
        7,
        given(0, lambda x: np.roll(x, 1, 1)),
        ("down_input", 1),
    ),
    "matmul: 1 %": ("llama", "matmul", 7, spoilt(3, by_a_hundredth), ("down", 1)),
    "matmul: two heads for each other": ("llama", "matmul", 4, spoilt(3, swapped_heads), ("qkv", 1)),
    "matmul: a head transposed": ("llama", "matmul", 8, spoilt(3, transposed_head), ("qkv", 2)),
    "matmul: of the logits": ("llama", "matmul", 12, spoilt(3, by_a_hundredth), ("logits", -1)),
    "head_norm: 1 %": ("gemma3", "head_norm", 2, spoilt(0, by_a_hundredth), ("head_norm", 2)),
    "head_norm: the values too": ("gemma3", "head_norm", 2, given(4, lambda count: count + 1), ("head_norm", 2)),
    "rope: 1 %": ("llama", "rope", 1, spoilt(0, by_a_hundredth), ("rope", 1)),
    "rope: one position on": ("llama", "rope", 1, given(1, lambda angles: np.roll(angles, -1, 0)), ("rope", 1)),
    "rope: the last key's head left": ("llama", "rope", 1, given(4, lambda count: count - 1), ("rope", 1)),
    "rope: the other layout": ("qwen2", "rope", 1, given(6, lambda interleaved: not interleaved), ("rope", 1)),
    "kv_write: 1 %": ("llama", "kv_write", 1, given(0, lambda qkv: qkv * np.float32(1.01)), ("kv_write", 1)),
    "kv_write: one slot on": ("llama", "kv_write", 1, given(1, later), ("kv_write", 1)),
    "attention: 1 %": ("llama", "attention", 1, spoilt(11, by_a_hundredth), ("attention", 1)),
    "attention: two heads for each other": ("llama", "attention", 1, spoilt(11, swapped_heads), ("attention", 1)),
    "attention: a head transposed": ("llama", "attention", 1, spoilt(11, transposed_head), ("attention", 1)),
    "attention: one position too many": ("llama", "attention", 1, given(1, later), ("attention", 1)),
    "attention: another layer's keys": ("llama", "attention", 1, given(3, lambda layer: layer - 1), ("attention", 1)),
    "activate: 1 %": ("llama", "activate", 1, spoilt(2, by_a_hundredth), ("activate", 1)),
    "activate: up and gate for each other": (
        "llama",
        "activate",
        1,
        given(0, lambda both: np.roll(both, both.shape[1] // 2, 1)),
        ("activate", 1),
    ),
    "add_rows: 1 %": ("llama", "add_rows", 2, given(1, lambda y: y * np.float32(1.01)), ("attention_residual", 1)),
    "add_rows: twice": ("llama", "add_rows", 3, twice, ("ffn_residual", 1)),
    "take_rows: the row before": (
        "llama",
        "take_rows",
        0,
        given(1, lambda rows: np.maximum(rows - 1, 0)),
        ("take_rows", -1),
    ),
    "softcap: 1 %": ("gemma2", "softcap", 0, spoilt(0, by_a_hundredth), ("logits_softcap", -1)),
}


def at_call(number: int, right: Operation, wrong: Operation) -> Operation:
    counted = iter(range(1 << 30))
    return lambda *arguments: (wrong if next(counted) == number else right)(*arguments)


def test_every_operation_has_a_fault() -> None:
    assert {operation for _, operation, *_ in CALLS.values()} == set(reference.TABLE) - {"tap"}
    assert set(OUTPUT) <= set(reference.TABLE)


@pytest.mark.parametrize("fault", CALLS)
def test_a_call_that_does_something_else(
    tiny: Callable[[str], Tiny], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    case, operation, number, spoil, place = CALLS[fault]
    compiled = getattr(cpu, operation)
    runner, exact = tiny(case)
    monkeypatch.setattr(cpu, operation, at_call(number, compiled, spoil(compiled)))
    found = measure_parity(runner, exact, IDS)
    assert over(found) == [place]
    assert not found.same_bits
