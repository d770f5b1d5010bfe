"""The ledger: names meet stamps, sums are exact, rows are grouped and bounded as by hand."""

import dataclasses

import numpy as np
import pytest

from cutaway.audit.costs import Cost, step_costs, works_of
from cutaway.audit.ledger import (
    HANDOVER,
    Ledger,
    LedgerRow,
    bound_of,
    group_rows,
    intervals,
    measure_ledger,
    tap_order,
)
from cutaway.audit.limits import MachineLimits
from cutaway.audit.workloads import check_length, decode_batch, prefill_batch
from cutaway.engine.runner import ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.model.batch import Piece, make_batch
from cutaway.model.shapes import taps_of


def test_the_dry_run_names_what_the_open_run_shows(runner: ModelRunner) -> None:
    batch = prefill_batch(runner, 3)
    shown: list[tuple[str, int]] = []
    runner.step_open(batch, lambda name, layer, array: shown.append((name, layer)))
    assert tap_order(runner.loaded.record, batch, runner.workspace) == shown


def test_the_dry_run_computes_nothing(runner: ModelRunner) -> None:
    batch = prefill_batch(runner, 3)
    runner.workspace.x[:] = runner.workspace.logits[:] = 7.0
    tap_order(runner.loaded.record, batch, runner.workspace)
    assert (runner.workspace.x == 7.0).all()
    assert (runner.workspace.logits == 7.0).all()


def test_costs_come_in_the_order_of_the_taps(runner: ModelRunner, weight_bytes: dict[str, int]) -> None:
    batch = prefill_batch(runner, 3)
    costs = step_costs(runner.config, weight_bytes, works_of(runner.config, batch), position_bytes=1)
    present = taps_of(runner.config)
    order = tap_order(runner.loaded.record, batch, runner.workspace)
    assert list(costs) == [tap for tap in order if tap[0] in present]


@pytest.mark.parametrize("tokens", [1, 16])
def test_a_timed_step_has_a_stamp_for_each_tap_and_its_intervals_add_up(runner: ModelRunner, tokens: int) -> None:
    batch = prefill_batch(runner, tokens)
    order = tap_order(runner.loaded.record, batch, runner.workspace)
    clocks = runner.step_timed(batch)
    assert clocks.shape == (2, 1 + 2 + len(order))
    assert (clocks[:, 0] == 2 + len(order)).all()
    assert (np.diff(clocks[:, 1:], axis=1) > 0).all()  # no stamp is missing, none is late
    parts = intervals(clocks, order)
    assert len(parts) == 1 + len(order)
    assert sum(parts) == clocks[:, -1].min() - clocks[0, 1]


def test_the_timed_step_gives_the_closed_step_s_bits(runner: ModelRunner) -> None:
    batch = make_batch([Piece(0, [1, 300, 301, 302], [1], outputs=2), Piece(0, [5, 6], [3], outputs=1)])
    closed = runner.step(batch).copy()
    assert np.ptp(closed) > 1
    runner.workspace.logits[:] = 0
    runner.step_timed(batch)
    assert (runner.workspace.logits[: len(closed)] == closed).all()


ORDER = [("embed", -1), ("down", 0), ("down", 1)]


def test_an_operation_ends_when_the_first_member_leaves_it() -> None:
    """Member 1 was stopped in the barrier behind the first call of down."""
    clocks = np.array([[5, 100, 130, 150, 250, 400], [5, 100, 131, 149, 390, 401]])
    assert intervals(clocks, ORDER) == [30, 19, 101, 150]


@pytest.mark.parametrize(
    "clocks",
    [
        [[4, 100, 130, 150, 250, 0]],  # a stamp is missing
        [[6, 100, 130, 150, 250, 400, 410]],  # there is one too many
        [[5, 100, 130, 150, 250, 400], [4, 100, 131, 149, 390, 0]],  # one is missing of the other member
        [[5, 100, 130, 150, 250, 400, 0]],  # a word too many
    ],
)
def test_clocks_that_the_taps_don_t_explain_are_refused(clocks: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"3 taps and the two at the start make 5"):
        intervals(np.array(clocks), ORDER)


@pytest.mark.parametrize(
    ("cost", "bound", "seconds"),
    [
        (Cost("", weight_bytes=10**7, kv_bytes=5 * 10**6, activation_bytes=5 * 10**6), "memory", 2e-3),
        (Cost("", weight_bytes=10**7, int8_operations=10**9), "int8", 1e-2),
        (Cost("", kv_bytes=10**7, flops=10**8), "float32", 5e-3),
        (Cost(""), "", 0.0),
    ],
)
def test_the_limit_that_binds_is_the_one_that_takes_longest(
    limits: MachineLimits, cost: Cost, bound: str, seconds: float
) -> None:
    name, least = bound_of(cost, limits)
    assert name == bound
    assert least == pytest.approx(seconds)


@pytest.mark.parametrize(("rows", "bound", "seconds"), [(1, "int8", 1e-2), (512, "amx", 2.5e-3)])
def test_many_rows_are_bound_by_matrix_registers(
    amx_limits: MachineLimits, rows: int, bound: str, seconds: float
) -> None:
    product = Cost("", weight_bytes=10**6, int8_operations=10**9, rows=rows)
    assert bound_of(product, amx_limits) == (bound, pytest.approx(seconds))
    costs = {("embed", -1): Cost(""), ("down", 0): product, ("down", 1): product}
    assert group_rows(ORDER, [0.0] * 4, costs, amx_limits)[2].bound == bound


def test_layers_are_added_up_under_one_name(limits: MachineLimits) -> None:
    costs = {
        ("embed", -1): Cost("a", weight_bytes=100, activation_bytes=10),
        ("down", 0): Cost("b", int8_operations=10**6, weight_bytes=1000, activation_bytes=20),
        ("down", 1): Cost("b", int8_operations=10**6, weight_bytes=3000, kv_bytes=7, activation_bytes=20),
    }
    handover, embed, down = group_rows(ORDER, [0.5, 1.0, 2.0, 4.0], costs, limits)
    assert handover == LedgerRow(HANDOVER, 1, "", 0, 0, 0, 0, 0, 0.5, "", 0.0)
    assert (embed.calls, embed.seconds, embed.bytes) == (1, 1.0, 110)
    assert (down.calls, down.seconds, down.shape) == (2, 6.0, "b")
    assert (down.int8_operations, down.weight_bytes, down.kv_bytes, down.activation_bytes) == (2 * 10**6, 4000, 7, 40)
    assert (down.bound, down.bound_seconds) == ("int8", pytest.approx(2e-5))


def test_what_a_ledger_says_as_a_whole(limits: MachineLimits) -> None:
    row = LedgerRow("down", 2, "", 0, 0, 8 * 10**6, 2 * 10**6, 5, 0.009, "memory", 0.001)
    ledger = Ledger(4, 128, (dataclasses.replace(row, seconds=0.002), row), (0.005, 0.01, 0.08), limits)
    assert ledger.seconds == pytest.approx(0.011)
    assert ledger.closed_median == 0.01
    assert ledger.deviation == pytest.approx(0.1)
    assert ledger.tokens_per_second == pytest.approx((50, 400, 800))
    assert ledger.streamed_bytes == 2 * 10**7
    assert ledger.streaming_limit == pytest.approx(4 / 0.002)
    assert ledger.roofline == pytest.approx(4 / 0.002)


def test_a_measured_ledger_accounts_for_a_whole_step(
    runner: ModelRunner, weight_bytes: dict[str, int], limits: MachineLimits
) -> None:
    batch = decode_batch(runner, 33)
    assert (batch.positions.tolist(), len(batch.block_tables[0])) == ([32], 3)
    ledger = measure_ledger(runner, batch, weight_bytes, limits)
    calls = {row.name: row.calls for row in ledger.rows}
    assert calls.pop(HANDOVER) == 1
    assert set(calls.values()) == {1, runner.config.num_layers}
    order = tap_order(runner.loaded.record, batch, runner.workspace)
    assert sum(calls.values()) == sum(name in taps_of(runner.config) for name, _ in order)
    assert (ledger.tokens, ledger.context, len(ledger.closed_seconds)) == (1, 33, 5)
    assert all(row.seconds > 0 for row in ledger.rows)
    assert list(ledger.closed_seconds) == sorted(ledger.closed_seconds)
    kv_bytes = sum(row.kv_bytes for row in ledger.rows)
    assert kv_bytes == runner.config.num_layers * (33 + 1) * 2 * 3 * 64 * 2  # 33 positions read, one written


def test_too_few_repetitions_are_refused(
    runner: ModelRunner, weight_bytes: dict[str, int], limits: MachineLimits
) -> None:
    with pytest.raises(InvalidRequestError, match="repeats is 4; a median needs 5"):
        measure_ledger(runner, prefill_batch(runner, 1), weight_bytes, limits, repeats=4)


@pytest.mark.parametrize("length", [0, -1, 8193])
def test_a_length_outside_the_model_s_context_is_refused(runner: ModelRunner, length: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"prompt is {length}; .* 1 to 8192 positions"):
        check_length("prompt", length, runner.config)
