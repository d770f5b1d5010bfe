"""The time-stamp counter and its conversion to seconds."""

import pytest

from cutaway.ops.cpu.clock import Reading, new_clocks, read_clocks, read_cycles, seconds_per_cycle


def test_the_period_is_seconds_over_cycles() -> None:
    assert seconds_per_cycle(Reading(1_000, 50), Reading(2_001_000, 4_050)) == pytest.approx(2e-3 / 4000)


def test_readings_out_of_order_are_refused() -> None:
    with pytest.raises(AssertionError, match="in order"):
        seconds_per_cycle(Reading(0, 7), Reading(10, 7))


def test_both_clocks_go_forward() -> None:
    first = read_clocks()
    between = read_cycles()
    last = read_clocks()
    assert first.cycles < between < last.cycles
    assert first.nanoseconds < last.nanoseconds


def test_new_clocks_hold_one_stamp_the_same_for_all() -> None:
    before = read_cycles()
    clocks = new_clocks(3, 5)
    assert clocks.shape == (3, 8)
    assert clocks[:, 0].tolist() == [1, 1, 1]
    assert before < clocks[0, 1] < read_cycles()
    assert (clocks[:, 1] == clocks[0, 1]).all()
    assert (clocks[:, 2:] == 0).all()
