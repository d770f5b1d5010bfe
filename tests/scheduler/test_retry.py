"""The estimate of when the queue has places, against departures at known times."""

import pytest
from test_scheduler import actions, advance, request, scheduler_of

from cutaway.errors import QueueFullError
from cutaway.scheduler.retry import RetryEstimate
from cutaway.scheduler.scheduler import Scheduler


def steady(estimate: RetryEstimate, now: float, interval: float, times: int) -> float:
    """So many departures, one an interval, while others wait; the time of the last."""
    for _ in range(times):
        now += interval
        estimate.observe(now, 1, 3)
    return now


def test_the_mean_of_steady_departures() -> None:
    estimate = RetryEstimate()
    steady(estimate, 0.0, 0.25, 50)
    assert estimate.seconds(1) == pytest.approx(0.25)
    assert estimate.seconds(8) == pytest.approx(2.0)


def test_several_that_leave_at_once_share_the_interval() -> None:
    estimate = RetryEstimate()
    estimate.observe(0.0, 4, 9)
    estimate.observe(2.0, 4, 5)
    assert estimate.seconds(1) == pytest.approx(0.5)


@pytest.mark.parametrize("leaves", ["last departure", "aborts"])
def test_an_idle_hour_is_no_interval(leaves: str) -> None:
    estimate = RetryEstimate()
    now = steady(estimate, 0.0, 0.05, 100)
    if leaves == "last departure":
        estimate.observe(now, 0, 0)
    estimate.restart()  # somebody comes into an empty queue
    estimate.observe(now + 3600, 1, 0)  # and is let in at once
    assert estimate.seconds(1) == pytest.approx(0.05)
    estimate.restart()
    now = steady(estimate, now + 7200, 0.05, 20)
    assert estimate.seconds(1) == pytest.approx(0.05)


def test_an_hour_of_running_with_nobody_waiting_is_no_interval() -> None:
    """Then one is preempted, so the queue isn't empty when the next comes."""
    estimate = RetryEstimate()
    now = steady(estimate, 0.0, 0.05, 100)
    for minute in range(60):
        estimate.observe(now + 60 * minute, 0, 0)
    estimate.observe(now + 3600, 0, 1)
    estimate.observe(now + 3600.05, 1, 1)
    assert estimate.seconds(1) == pytest.approx(0.05)


def test_before_an_interval_is_over_it_counts_as_long_as_it_lasts() -> None:
    estimate = RetryEstimate()
    assert estimate.seconds(3) is None
    estimate.observe(5.0, 2, 4)
    assert estimate.seconds(3) is None
    estimate.observe(7.0, 0, 4)
    assert estimate.seconds(3) == 6.0
    estimate.observe(9.0, 1, 3)
    assert estimate.seconds(3) == 12.0


def refusal(scheduler: Scheduler, name: str) -> float | None:
    """The estimate for one more, of which there are too many."""
    with pytest.raises(QueueFullError) as caught:
        scheduler.submit(request(name))
    return caught.value.retry_after


@pytest.mark.parametrize("aborted", [False, True])
def test_a_scheduler_that_was_idle(aborted: bool) -> None:
    """One row, one new token: somebody leaves the queue each second, an hour before and now."""
    scheduler = scheduler_of(max_sequences=1, max_waiting=2)
    for start in (0.0, 3600.0):
        for number in range(2):
            scheduler.submit(request(f"{start} {number}", new=1))
        for number in range(2, 6):
            advance(scheduler, now=start + number)
            scheduler.submit(request(f"{start} {number}", new=1))
        assert refusal(scheduler, f"{start} more") == pytest.approx(1.0)
        for sequence in scheduler.sequences():
            if aborted:
                scheduler.abort(sequence.request.id)
            else:
                advance(scheduler, now=start + 6 + int(sequence.name.split()[1]) - 4)
        assert not scheduler.has_work


def test_who_is_let_in_again_has_left_no_new_place() -> None:
    """Two share 4 blocks of 4, and the second is preempted again and again; the first's answer is all that goes on, so
    the third leaves the queue after 10 s, and nobody before.
    """
    scheduler = scheduler_of(blocks=5, max_sequences=2, max_waiting=3)
    scheduler.submit(request("a", 7, new=13))
    scheduler.submit(request("b", 7, new=13))
    scheduler.submit(request("c", 4, new=1))
    now = 0.0
    while not any(name == "c" for name, _ in actions(scheduler, "admitted")):
        advance(scheduler, now=now)
        now += 1.0
    assert len(actions(scheduler, "preempted")) > 0
    assert [name for name, _ in actions(scheduler, "admitted")].count("b") > 1
    scheduler.abort("a")
    assert scheduler._estimate.seconds(1) == pytest.approx(now - 1.0)
