"""Open steps in an engine core without a model: who shares them, how often they come, and what may be kept."""

from collections.abc import Callable
from typing import Any

import pytest
from core_rig import Rig, SeenTokens, answer_alone
from prefix_runner import PrefixRunner

from cutaway.engine.open_steps import OpenShare
from cutaway.engine.tap_limits import MOST_SHARE, TapLimits, tap_limits
from cutaway.errors import InvalidRequestError, QueueFullError
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.step import Step

LONG = {"temperature": 1.0, "max_tokens": 20}


def rig_with(share: float = 0.25, max_bytes: int = 1 << 20, **options: Any) -> Rig:
    rig = Rig(PrefixRunner(), **options)
    limits = TapLimits(max_bytes, share)
    rig.core._taps, rig.core._share = limits, OpenShare(share)
    return rig


class Timed:
    """Lets each step of a rig's runner take its time on the rig's clock, and keeps which were open."""

    def __init__(self, rig: Rig, closed: float, opened: float) -> None:
        self.rig, self.kinds = rig, ""
        self.seconds = {"c": closed, "o": opened}
        runner, step, step_tapped = rig.runner, rig.runner.step, rig.runner.step_tapped

        def timed(batch: Batch) -> Floats:
            if not self._in_open:
                self._took("c")
            return step(batch)

        def timed_open(batch: Batch, tap: Any) -> Floats:
            self._took("o")
            self._in_open = True
            try:
                return step_tapped(batch, tap)
            finally:
                self._in_open = False

        self._in_open = False
        runner.step, runner.step_tapped = timed, timed_open  # type: ignore[method-assign]

    def _took(self, kind: str) -> None:
        self.rig.clock.now += self.seconds[kind]
        self.kinds += kind


SHARES = [(0.25, 1.0, 4.0), (0.5, 1.0, 1.0), (0.1, 2.0, 3.0), (0.9, 1.0, 9.0)]
"""And how long a closed and an open step take, in seconds."""


@pytest.mark.parametrize(("share", "closed", "opened"), SHARES)
def test_open_steps_take_their_share_of_the_time(share: float, closed: float, opened: float) -> None:
    rig = rig_with(share)
    timed = Timed(rig, closed, opened)
    watched = rig.ask(watch=SeenTokens(), **LONG)
    others = [rig.ask([each], temperature=1.0, max_tokens=35) for each in range(3)]
    while not watched.generation.ended and not all(each.generation.ended for each in others):
        rig.core.step()
    kinds = timed.kinds[: timed.kinds.rindex("o")]  # whole rounds: what is owed comes after an open step
    shares = kinds.count("o") * opened / (kinds.count("o") * opened + kinds.count("c") * closed)
    assert "o" in kinds
    assert shares <= share + 1e-9
    most = -(-opened * (1 - share) / share // closed) + 1  # closed steps from one open step to the next
    assert "c" * int(most + 1) not in kinds, kinds
    rig.run()
    for each in [watched, *others]:
        assert each.ids == [sample.token_id for sample in answer_alone(rig.runner, each.generation.asked)]


def test_one_closed_step_at_least_whatever_the_clock_says() -> None:
    rig = rig_with(0.9)
    timed = Timed(rig, 1.0, 0.0)
    rig.ask(watch=SeenTokens(), **LONG)
    rig.ask(**LONG)
    rig.run()
    assert "oo" not in timed.kinds.rstrip("o")


def test_alone_nobody_waits() -> None:
    rig = rig_with(0.01)
    timed = Timed(rig, 1.0, 100.0)
    rig.ask(watch=SeenTokens(), **LONG)
    rig.run()
    assert timed.kinds == "o" * 20


def test_without_taps_nothing_is_open() -> None:
    rig = rig_with()
    timed = Timed(rig, 1.0, 1.0)
    for each in range(6):
        rig.ask([each], **LONG)
    rig.run()
    assert set(timed.kinds) == {"c"}
    assert rig.runner.open_steps == 0


@pytest.mark.parametrize("chunked", [True, False])
def test_an_open_step_has_no_others(chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_with(policy=ContinuousPolicy(chunked_prefill=chunked))
    schedule, kinds = rig.core.scheduler.schedule, set[tuple[bool, ...]]()

    def recorded(now: float, refill: Callable[[], object], *, opens: bool) -> Step:
        step = schedule(now, refill, opens=opens)
        kinds.add(tuple(sorted({piece.sequence.request.is_open for piece in step.pieces})))
        return step

    monkeypatch.setattr(rig.core.scheduler, "schedule", recorded)
    answers = [rig.ask([each, 3], watch=SeenTokens() if each % 2 else None, **LONG) for each in range(8)]
    rig.run()
    assert kinds == {(True,), (False,)}
    assert all(len(each.ids) == 20 for each in answers)


@pytest.mark.parametrize("fails", ["begin", "wanted", "embed", "logits"])
def test_a_watch_that_fails_ends_its_request_alone(fails: str) -> None:
    rig = rig_with()
    bad = rig.ask(watch=SeenTokens(fails=fails), **LONG)
    good, plain = rig.ask(watch=SeenTokens(), **LONG), rig.ask(**LONG)
    rig.run()
    assert isinstance(bad.error, ZeroDivisionError)
    assert (good.error, plain.error) == (None, None)
    assert len(good.ids) == len(plain.ids) == 20


def test_what_all_keep_together_is_limited() -> None:
    rig = rig_with(max_bytes=100)
    first = rig.ask(watch=SeenTokens(num_bytes=60), **LONG)
    plain = rig.ask(**LONG)
    with pytest.raises(QueueFullError, match=r"up to 41 bytes, and those of other requests 60; the limit .* is 100\."):
        rig.ask(watch=SeenTokens(num_bytes=41), **LONG)
    second = rig.ask(watch=SeenTokens(num_bytes=40), **LONG)
    rig.run()
    assert all(len(each.ids) == 20 for each in (first, plain, second))
    assert len(answered(rig, SeenTokens(num_bytes=100))) == 20, "what has ended keeps nothing"


def answered(rig: Rig, watch: SeenTokens) -> list[int]:
    answer = rig.ask(watch=watch, **LONG)
    rig.run()
    return answer.ids


def test_during_overload() -> None:
    """No place in the queue: the tapped request is refused like any other, and those that run don't notice."""
    rig = rig_with(limits={"max_waiting": 2})
    answers = [rig.ask([each], **LONG) for each in range(2)]
    with pytest.raises(QueueFullError, match="wait"):
        rig.ask(watch=SeenTokens(), **LONG)
    rig.run()
    assert all(len(each.ids) == 20 for each in answers)


def test_a_step_that_failed_is_seen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen of it doesn't count: the watch would find other rows at the same positions, or twice as many."""
    rig = rig_with()
    watch = SeenTokens()
    answer = rig.ask(watch=watch, **LONG)
    step_tapped, failed = rig.runner.step_tapped, []

    def fails_once(batch: Batch, tap: Any) -> Floats:
        logits = step_tapped(batch, tap)
        if not failed and len(watch.tokens) == 7:
            failed.append(dict(watch.tokens))
            raise MemoryError("of the test")
        return logits

    monkeypatch.setattr(rig.runner, "step_tapped", fails_once)
    while rig.core.has_work:
        try:
            rig.core.step()
        except MemoryError:
            assert watch.tokens == failed[0]
    assert failed
    assert answer.ids == [sample.token_id for sample in answer_alone(rig.runner, answer.generation.asked)]
    assert sorted(watch.tokens) == list(range(len(answer.generation.asked.prompt_ids) + 19))


@pytest.mark.parametrize("value", [0, 0.0, 1, -0.5, True, "half", float("nan"), MOST_SHARE + 0.001])
def test_shares_that_are_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"tap_share is .* from 0\.01 to 0\.9"):
        tap_limits(None, value)


def test_limits_as_people_write_them() -> None:
    assert tap_limits("2MiB", 0.5) == TapLimits(2 << 20, 0.5)
    assert tap_limits(None, None) == TapLimits(256 << 20, 0.25)
    with pytest.raises(InvalidRequestError, match="max_tap_bytes is 'much'"):
        tap_limits("much", None)
