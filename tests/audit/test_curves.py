"""The curves: points of the right sizes, memory that was written, and arithmetic done by hand on invented ledgers."""

from collections.abc import Iterator

import numpy as np
import pytest

from cutaway.audit.curves import (
    BatchCurve,
    ContextCurve,
    Line,
    Parts,
    batch_rows,
    contexts_up_to,
    measure_batch_curve,
    measure_context_curve,
    parts,
)
from cutaway.audit.ledger import Ledger
from cutaway.audit.limits import MachineLimits
from cutaway.audit.workloads import decode_batch, fill_kv
from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.memory.kv_cache import allocate_kv_pool
from cutaway.memory.kv_read import read_keys, read_values
from support.ledgers import invented_ledger
from support.tiny_llama import TinySizes, write_tiny_llama

SIZES = TinySizes()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModelRunner, dict[str, int]]]:
    """A runner with a pool of 4 · 48 positions, and the bytes of its matrices."""
    path = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", SIZES)
    with (
        open_gguf(path) as gguf,
        ModelRunner(gguf, threads=2, context=48, max_tokens=8, max_outputs=8, num_pages=12) as runner,
    ):
        yield runner, {name: tensor.nbytes for name, tensor in gguf.tensors.items()}


def test_every_sequence_of_a_batch_has_pages_of_its_own(tiny: tuple[ModelRunner, dict[str, int]]) -> None:
    batch = decode_batch(tiny[0], 33, rows=4)
    assert batch.positions.tolist() == [32] * 4
    assert batch.output_rows.tolist() == [0, 1, 2, 3]
    assert sorted(batch.block_tables.ravel().tolist()) == list(range(12))  # 33 positions take 3 pages of 16
    assert tiny[0].step(batch).shape == (4, SIZES.vocab_size)


def test_a_filled_cache_holds_numbers_of_both_signs_everywhere(tiny: tuple[ModelRunner, dict[str, int]]) -> None:
    pool = tiny[0].kv
    for array in (pool.keys, pool.values):
        array[:] = np.nan
    fill_kv(pool)
    for array in (pool.keys, pool.values):
        assert np.abs(array).max() <= 1
        heads = array.reshape(-1, array.shape[-2] * array.shape[-1])
        assert (heads.min(axis=1) < -0.9).all()
        assert (heads.max(axis=1) > 0.9).all()
    assert np.isfinite(tiny[0].step(decode_batch(tiny[0], 48))).all()


def test_a_filled_int8_cache_holds_the_same_numbers(tiny: tuple[ModelRunner, dict[str, int]]) -> None:
    """Each within a step of 1/127 of those in float32."""
    pools = [allocate_kv_pool(tiny[0].config, 3, 16, data_type) for data_type in ("f32", "int8")]
    for pool in pools:
        fill_kv(pool)
    for read in (read_keys, read_values):
        exact, got = (read(pool, 1, [0, 1, 2], 48) for pool in pools)
        assert 0 < np.abs(got - exact).max() <= 1 / 127


def test_a_measured_batch_curve_has_a_ledger_for_each_number_of_rows(
    tiny: tuple[ModelRunner, dict[str, int]], limits: MachineLimits
) -> None:
    runner, weight_bytes = tiny
    fill_kv(runner.kv)
    heard: list[tuple[int, int]] = []
    curve = measure_batch_curve(runner, [1, 3, 6], 20, weight_bytes, limits, 5, lambda *round_: heard.append(round_))
    assert [(ledger.tokens, ledger.context) for ledger in curve.ledgers] == [(1, 20), (3, 20), (6, 20)]
    assert heard == [(done, 5) for done in range(5)]
    one, three, six = ({row.name: row for row in ledger.rows} for ledger in curve.ledgers)
    assert six["gate_up"].weight_bytes == one["gate_up"].weight_bytes  # read once, for all rows
    assert six["attention"].kv_bytes == 6 * one["attention"].kv_bytes
    assert three["logits"].int8_operations == 3 * one["logits"].int8_operations
    assert all(len(ledger.closed_seconds) == 5 for ledger in curve.ledgers)


def test_a_measured_context_curve_has_a_ledger_for_each_context(
    tiny: tuple[ModelRunner, dict[str, int]], limits: MachineLimits
) -> None:
    runner, weight_bytes = tiny
    fill_kv(runner.kv)
    curve = measure_context_curve(runner, [1, 17, 48], weight_bytes, limits, 5)
    assert [(ledger.tokens, ledger.context) for ledger in curve.ledgers] == [(1, 1), (1, 17), (1, 48)]
    position = SIZES.num_layers * 2 * SIZES.num_kv_heads * SIZES.head_dim * 2  # keys and values, float16
    assert curve.kv_bytes_per_position == position
    assert curve.streaming_seconds_per_position == pytest.approx(position / 10e9)


@pytest.mark.parametrize(
    ("context", "positions", "expected"),
    [
        (128, 8192, [1, 2, 4, 8, 16, 32, 64]),
        (129, 8192, [1, 2, 4, 8, 16, 32]),  # 64 · 144 positions don't fit
        (100, 6400, [1, 2, 4, 8, 16, 32]),  # a page is never shared: 100 positions take 7
        (8192, 8192, [1]),
        (1, 8192, [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_as_many_rows_as_the_pool_holds(context: int, positions: int, expected: list[int]) -> None:
    assert batch_rows(context, positions) == expected


def test_contexts_end_with_the_longest() -> None:
    assert contexts_up_to(8192) == [1, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
    assert contexts_up_to(300) == [1, 64, 128, 256, 300]
    assert contexts_up_to(2) == [1, 2]


def test_the_parts_of_a_step_are_its_products_its_attention_and_the_rest(limits: MachineLimits) -> None:
    ledger = invented_ledger(limits, 2, 128, qkv=0.001, logits=0.002, attention=0.004, other=0.008)
    assert parts(ledger) == Parts(pytest.approx(0.003), pytest.approx(0.004), pytest.approx(0.008))


def batch_curve(limits: MachineLimits, *closed: float, crossing: dict[str, int] | None = None) -> BatchCurve:
    """1, 2, 4 … rows, whose closed steps take so many seconds."""
    ledgers = []
    for number, seconds in enumerate(closed):
        rows = 2**number
        bounds = {name: "int8" if rows >= first else "memory" for name, first in (crossing or {}).items()}
        times = {"qkv": 0.001 * rows, "logits": 0.002, "attention": 0.003 * rows, "other": 0.0005}
        ledgers.append(invented_ledger(limits, rows, 128, closed=seconds, bounds=bounds, **times))
    return BatchCurve(tuple(ledgers))


def test_the_gain_ends_where_nearly_all_is_reached(limits: MachineLimits) -> None:
    curve = batch_curve(limits, 0.010, 0.0105, 0.020, 0.039)  # 100, 190, 200, 205 tokens/s
    assert (curve.best.tokens, curve.gain_ends) == (8, 2)
    falling = batch_curve(limits, 0.010, 0.010, 0.030)  # 100, 200, 133
    assert (falling.best.tokens, falling.gain_ends) == (2, 2)
    growing = batch_curve(limits, 0.010, 0.010, 0.010)
    assert (growing.best.tokens, growing.gain_ends) == (4, 4)


def test_a_product_is_bound_by_arithmetic_from_the_first_point_where_it_is(limits: MachineLimits) -> None:
    curve = batch_curve(limits, 0.01, 0.01, 0.01, 0.01, crossing={"qkv": 4, "logits": 16})
    assert curve.bound_by_arithmetic == {"qkv": 4}
    assert batch_curve(limits, 0.01, 0.01, crossing={"qkv": 1, "logits": 2}).bound_by_arithmetic == {
        "qkv": 1,
        "logits": 2,
    }


def test_what_one_more_row_costs(limits: MachineLimits) -> None:
    cost = batch_curve(limits, 0.01, 0.01, 0.01).cost_of_a_row
    assert cost is not None
    assert (cost.products, cost.attention, cost.other) == pytest.approx((0.001, 0.003, 0.0))
    assert batch_curve(limits, 0.01).cost_of_a_row is None


def test_a_line_through_points_on_a_line() -> None:
    line = Line.through([1, 101, 501], [0.0051, 0.0151, 0.0551])
    assert (line.seconds, line.seconds_per_position) == pytest.approx((0.005, 0.0001))


def context_curve(limits: MachineLimits, base: float, slope: float) -> ContextCurve:
    def ledger(context: int) -> Ledger:
        growth = slope * context
        times = {"qkv": base, "logits": 0.0, "attention": growth, "other": 0.0}
        return invented_ledger(limits, 1, context, closed=base + 2 * growth, **times)

    return ContextCurve(tuple(map(ledger, (1, 64, 1024))))


def test_a_context_curve_by_hand(limits: MachineLimits) -> None:
    curve = context_curve(limits, 0.004, 1e-6)
    assert (curve.step.seconds, curve.step.seconds_per_position) == pytest.approx((0.004, 2e-6))
    assert (curve.attention.seconds, curve.attention.seconds_per_position) == pytest.approx((0.0, 1e-6))
    assert curve.context_that_doubles == pytest.approx(2000)
    assert curve.kv_bytes_per_position == 100
    assert curve.streaming_seconds_per_position == pytest.approx(1e-8)


def test_no_growth_doubles_nothing(limits: MachineLimits) -> None:
    assert context_curve(limits, 0.004, -1e-7).context_that_doubles is None
