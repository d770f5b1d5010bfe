"""Who observes an engine is told of everything once, in time, and changes nothing; what nobody wants isn't made."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from core_rig import Answer, Rig, SeenTokens, answer_alone, asked
from prefix_runner import PrefixRunner

from cutaway.engine import core
from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.generation import Generation
from cutaway.engine.observer import Observer
from cutaway.engine.step_outcome import SeenStep, StepOutcome
from cutaway.engine.steps import TapName
from cutaway.engine.watched import Watched
from cutaway.errors import CutawayError
from cutaway.scheduler.step import Step


class Runner(PrefixRunner):
    """Has residual rows: the number of the step, and of the row. Counts how often they were asked for."""

    asked_for_residuals = 0

    def residuals(self, batch: Any) -> Any:
        self.asked_for_residuals += 1
        rows = np.arange(len(batch.output_rows), dtype=np.float32)
        return np.stack([np.full_like(rows, self.num_steps), rows], axis=1)


class Teller(Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def admitted(self, generation: Generation) -> None:
        self.told.append(("admitted", generation.request_id, None))

    def stepped(self, outcome: StepOutcome) -> None:
        residuals, rows = outcome.residuals, 0
        for result, taken in zip(outcome.computed.results, outcome.taken, strict=True):
            tokens = [delta.token_ids[0] for delta in taken.deltas]
            assert tokens == [sample.token_id for sample in result.samples[: len(tokens)]]
            rows += result.piece.num_outputs
            assert result.last_output == rows - 1
            self.told.append(("stepped", result.generation.request_id, tokens))
        assert len(residuals) == rows

    def ended(self, generation: Generation, reason: str) -> dict[str, Any]:
        self.told.append(("ended", generation.request_id, reason))
        return {"told": len(self.told)}

    def of(self, request_id: str) -> list[tuple[str, Any]]:
        """What it was told of one request."""
        return [(what, value) for what, whose, value in self.told if whose == request_id]


def observed(**options: Any) -> tuple[Rig, Teller]:
    rig, teller = Rig(Runner(), **options), Teller()
    rig.core.observers.append(teller)
    return rig, teller


def summaries_at_the_end(answer: Answer) -> list[Any]:
    """The request's summary each time that its sink is called."""
    seen: list[Any] = []
    sink = answer.generation.sink

    def look(arrival: Any) -> None:
        seen.append(answer.generation.summary)
        sink(arrival)

    answer.generation.sink = look
    return seen


def test_everything_is_told_once_and_before_whoever_asked() -> None:
    rig, teller = observed()
    answers = [rig.ask([3, 1, 4, number], seed=number, max_tokens=3, n=1 + number % 2) for number in range(4)]
    seen = [summaries_at_the_end(each) for each in answers]
    rig.run()
    for number, answer in enumerate(answers):
        told = teller.of(str(number))
        assert told[0] == ("admitted", None)
        assert told[-1] == ("ended", "end")
        tokens = [value for what, value in told if what == "stepped"]
        assert sum(map(len, tokens)) == 3 * (1 + number % 2)
        assert tokens[-1]
        assert sorted(chain(*tokens)) == sorted(chain(*(each.token_ids for each in answer.choices())))
        assert seen[number][:-1] == [None] * (len(seen[number]) - 1)
        assert seen[number][-1] is not None


# -- every way to end


def step_twice(rig: Rig, answer: Answer) -> None:
    """Submit it, and let it have tokens."""
    rig.core.submit(answer.generation)
    rig.core.step()
    rig.core.step()


def runs_to_its_end(rig: Rig, answer: Answer) -> None:
    rig.core.submit(answer.generation)


def is_aborted(rig: Rig, answer: Answer) -> None:
    step_twice(rig, answer)
    rig.core.abort(answer.generation)
    rig.core.abort(answer.generation)


def is_late(rig: Rig, answer: Answer) -> None:
    answer.generation.deadline = 5.0
    step_twice(rig, answer)
    rig.clock.now = 6.0


def is_late_on_its_way(rig: Rig, answer: Answer) -> None:
    answer.generation.deadline, rig.clock.now = 5.0, 6.0
    rig.core.submit(answer.generation)


def has_no_numbers(rig: Rig, answer: Answer) -> None:
    """Amid its answer, where the last of its choices has its second token."""
    wanted = answer.generation.asked
    rig.runner.damaged = (*wanted.prompt_ids, answer_alone(rig.runner, wanted, wanted.params.n - 1)[0].token_id)
    rig.core.submit(answer.generation)


def is_seen_by_one_that_fails(rig: Rig, answer: Answer) -> None:
    answer.generation.watched = Watched(SeenTokens(fails="logits"))
    rig.core.submit(answer.generation)


def fails_with_all(rig: Rig, answer: Answer) -> None:
    step_twice(rig, answer)
    rig.core.fail(CutawayError("the end"))
    rig.core.fail(CutawayError("the end"))


def breaks_with_the_engine(rig: Rig, answer: Answer) -> None:
    step_twice(rig, answer)
    rig.core._break(CutawayError("lost"))


def can_t_be_given_back(rig: Rig, answer: Answer) -> None:
    step_twice(rig, answer)
    rig.core.scheduler.abort = lambda *_: 1 // 0  # type: ignore[method-assign]
    rig.core.fail(CutawayError("the end"))


def hold(rig: Rig, answer: Answer) -> None:
    """In the backlog, behind one that fills the queue."""
    rig.ask([8], max_tokens=2)
    answer.generation.request_id = "held"
    rig.core.hold([answer.generation])


def is_aborted_in_the_backlog(rig: Rig, answer: Answer) -> None:
    hold(rig, answer)
    rig.core.abort(answer.generation)


def is_late_in_the_backlog(rig: Rig, answer: Answer) -> None:
    answer.generation.deadline = 5.0
    hold(rig, answer)
    rig.clock.now = 6.0


def fails_in_the_backlog(rig: Rig, answer: Answer) -> None:
    hold(rig, answer)
    rig.core.fail(CutawayError("the end"))


def can_never_run(rig: Rig, answer: Answer) -> None:
    answer.generation.asked = replace(answer.generation.asked, max_new_tokens=1000)
    hold(rig, answer)


ADMITTED = {
    runs_to_its_end: "end",
    is_aborted: "abort",
    is_late: "deadline",
    is_late_on_its_way: "deadline",
    has_no_numbers: "error",
    is_seen_by_one_that_fails: "error",
    fails_with_all: "error",
    breaks_with_the_engine: "error",
    can_t_be_given_back: "error",
}
HELD_BACK = {
    is_aborted_in_the_backlog: "abort",
    is_late_in_the_backlog: "deadline",
    fails_in_the_backlog: "error",
    can_never_run: "error",
}


@pytest.mark.parametrize("ends", [*ADMITTED, *HELD_BACK])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("n", [1, 2])
def test_each_end_is_told_once_and_what_is_said_goes_with_the_last_event(
    ends: Callable[[Rig, Answer], None], whole: bool, n: int
) -> None:
    rig, teller = observed(limits={"max_waiting": 2})
    answer = Answer(asked([3, 1, 4], 1, (), rig.runner.context, max_tokens=6, n=n), "0")
    answer.generation.whole = whole
    seen = summaries_at_the_end(answer)
    ends(rig, answer)
    while rig.core.has_work:
        rig.core.step()
    told = teller.of(answer.generation.request_id)
    assert [each for each in told if each[0] == "admitted"] == [("admitted", None)] * (ends in ADMITTED)
    assert [each for each in told if each[0] == "ended"] == [("ended", {**ADMITTED, **HELD_BACK}[ends])]
    assert told[-1][0] == "ended"
    assert seen[-1] == {"told": teller.told.index(("ended", answer.generation.request_id, told[-1][1])) + 1}
    if whole:
        assert len(seen) == 1
    assert (answer.error is not None) == (told[-1][1] == "error")


@pytest.mark.parametrize("last", [False, True])
def test_an_end_by_the_sink_is_told_once(last: bool) -> None:
    """It raises at the first token, and nobody knew before; or at the last, which the observer was told of."""
    rig, teller = observed()
    answer, other = rig.ask(max_tokens=3), rig.ask(max_tokens=4)

    def sink(arrival: Any) -> None:
        if not last or answer.generation.ended:
            raise ZeroDivisionError

    answer.generation.sink = sink
    rig.run()
    assert [each for each in teller.of("0") if each[0] == "ended"] == [("ended", "end" if last else "error")]
    assert len(other.ids) == 4


def test_who_ended_in_the_step_that_broke_the_engine_has_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, teller = observed()
    short, long = rig.ask(max_tokens=1), rig.ask(max_tokens=4)

    def breaks(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rig.core.scheduler, "complete", breaks)
    with pytest.raises(ZeroDivisionError):
        rig.core.step()
    assert (len(short.ids), short.error, teller.of("0")[-1]) == (1, None, ("ended", "end"))
    assert (type(long.error), teller.of("1")[-1]) == (CutawayError, ("ended", "error"))


# -- what they want


class Keeper(Observer):
    """Keeps the steps' numbers, and looks into some."""

    def __init__(self, opens: bool) -> None:
        self.opens, self.steps = opens, list[SeenStep]()

    def looks(self, step: Step) -> list[Any]:
        return [Watched(SeenTokens(fails="all"))] if self.opens and step.number % 3 else []

    def stepped(self, outcome: StepOutcome) -> None:
        self.steps.append(outcome.seen)


def test_a_step_is_open_if_anybody_looks_into_it() -> None:
    rig, keepers = Rig(Runner()), [Keeper(True), Keeper(False)]
    rig.core.observers += keepers
    rig.ask(max_tokens=4)
    rig.ask([9], max_tokens=4, watch=SeenTokens())
    rig.run()
    steps = keepers[0].steps
    assert steps == keepers[1].steps
    assert [each.number for each in steps if not each.number % 3 and each.is_open]
    assert all(each.is_open for each in steps if each.number % 3)
    assert not all(each.is_open for each in steps)
    assert sum(each.is_open for each in steps) == rig.runner.open_steps
    assert all(each.blocks_held > 0 and each.pieces[0].blocks > 0 for each in steps)


def test_a_piece_s_tokens_are_of_its_last_output_row() -> None:
    """Beside others, where a prompt that is scored has a row for each of its tokens."""
    rig, teller = observed()
    answers = [rig.ask(max_tokens=3), rig.ask([5, 9, 7], max_tokens=3, prompt_logprobs=0), rig.ask([9], max_tokens=3)]
    rig.run()
    for answer in answers:
        told = [
            token for what, tokens in teller.of(answer.generation.request_id) if what == "stepped" for token in tokens
        ]
        assert told == answer.ids


class Scores(Observer):
    """Keeps the tokens' log-probabilities."""

    def __init__(self, wants: bool) -> None:
        self.wants_logprobs, self.found = wants, list[tuple[int, float | None, int | None]]()

    def stepped(self, outcome: StepOutcome) -> None:
        for result in outcome.computed.results:
            self.found += [(each.token_id, each.logprob, each.rank) for each in result.samples]  # type: ignore[union-attr]


def test_log_probabilities_are_found_as_long_as_an_observer_wants_them() -> None:
    """From step to step, whenever the request was let in; who asked is told none of it."""
    rig, idle, eager = Rig(Runner()), Scores(False), Scores(True)
    rig.core.observers.append(idle)
    answer = rig.ask(max_tokens=6, temperature=0.9, seed=1)
    for step in range(6):
        if step == 2:
            rig.core.observers.append(eager)
        if step == 4:
            rig.core.observers.remove(eager)
        rig.core.step()
    assert answer.error is None
    assert [value is not None for _, value, _ in idle.found] == [False, False, True, True, False, False]
    assert eager.found == idle.found[2:4]
    assert all(value is not None and value < 0 and rank is None for _, value, rank in eager.found)
    assert [token for token, _, _ in idle.found] == answer.ids
    assert answer.choices()[0].logprobs is None


def test_nothing_is_made_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, made = Rig(Runner()), list[object]()
    monkeypatch.setattr(core, "StepOutcome", lambda *parts: made.append(1) or StepOutcome(*parts))
    rig.ask(max_tokens=4)
    rig.run()
    assert not made
    rig.core.observers += [Observer(), Keeper(False)]
    rig.ask(max_tokens=4)
    rig.run()
    assert (len(made), rig.runner.asked_for_residuals) == (4, 0)
    rig.core.observers += [Teller(), Teller()]
    rig.ask(max_tokens=4)
    rig.run()
    assert rig.runner.asked_for_residuals == 2 * 4, "a view, for each that asks"


# -- several, and those that fail


def test_what_several_say_is_put_together() -> None:
    class Other(Observer):
        def ended(self, generation: Generation, reason: str) -> dict[str, Any]:
            return {"reason": reason}

    rig, teller = observed()
    rig.core.observers += [Observer(), Other()]
    answer, silent = rig.ask(max_tokens=2), Rig(Runner())
    rig.run()
    assert answer.generation.summary == {"told": len(teller.told), "reason": "end"}
    silent.core.observers.append(Observer())
    answer = silent.ask(max_tokens=2)
    silent.run()
    assert answer.generation.summary is None


@pytest.mark.parametrize("method", ["admitted", "looks", "wants_clocks", "stepped", "ended"])
@pytest.mark.parametrize("as_errors", [False, True])
def test_one_that_fails_hears_no_more_and_the_others_go_on(
    method: str, as_errors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, teller = observed()
    bad, calls = Observer(), list[object]()

    def fails(*arguments: object) -> None:
        calls.append(arguments)
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr(bad, method, fails)
    monkeypatch.setattr(rig.core, "_timed_runner", TimedRunner())
    rig.core.observers.insert(0, bad)
    with warnings.catch_warnings(record=not as_errors) as caught:
        warnings.simplefilter("error" if as_errors else "always")
        answer = rig.ask(max_tokens=4)
        rig.run()
    assert len(calls) == 1
    assert rig.core.observers == [teller]
    assert len(answer.ids) == 4
    assert [what for what, _ in teller.of("0")] == ["admitted", *["stepped"] * 4, "ended"]
    assert as_errors or ["of the test" in str(each.message) for each in caught or ()] == [True]


class TimedRunner:
    """Would run steps timed."""

    def step_timed(self, batch: Any) -> Any:
        raise AssertionError("nobody wants it")


class Looker(Observer):
    """Looks into each step himself, and raises there."""

    def __init__(self, fails: str) -> None:
        self.fails, self.steps = fails, 0

    def looks(self, step: Step) -> list[Any]:
        return [self]

    @property
    def wanted(self) -> set[TapName]:
        self.see("wanted", -1, None)
        return {("embed", -1), ("logits", -1)}

    def see(self, name: str, layer: int, array: Any) -> None:
        if name == self.fails:
            raise ZeroDivisionError("of the test")

    def stepped(self, outcome: StepOutcome) -> None:
        self.steps += 1


@pytest.mark.parametrize("fails", ["wanted", "embed", "logits"])
def test_one_whose_look_fails_hears_no_more_and_the_others_go_on(fails: str) -> None:
    rig, teller = observed()
    looker = Looker(fails)
    rig.core.observers.insert(0, looker)
    answers = [rig.ask(max_tokens=4), rig.ask([9], max_tokens=4, watch=SeenTokens())]
    with pytest.warns(UserWarning, match="of the test"):
        rig.run()
    assert (looker.steps, rig.core.observers) == (0, [teller])
    assert [(each.error, len(each.ids)) for each in answers] == [(None, 4), (None, 4)]


def test_one_that_asks_the_engine_for_something_is_told_that_it_would_wait_for_itself() -> None:
    rig, teller = observed()
    engine = EngineThread(rig.core, "closed")
    errors: list[str] = []

    class Asks(Observer):
        def stepped(self, outcome: StepOutcome) -> None:
            with pytest.raises(CutawayError, match="wait for itself for ever") as caught:
                engine.call(lambda core: core.totals)
            errors.append(str(caught.value))

    rig.core.observers.append(Asks())
    engine.call(lambda core: rig.ask(max_tokens=3)).result(300)
    while engine.call(lambda core: core.has_work).result(300):
        pass
    engine.close()
    assert len(errors) == len([what for what, _ in teller.of("0") if what == "stepped"]) == 3


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("exits", [SystemExit, KeyboardInterrupt])
def test_who_asked_is_told_the_end_though_an_observer_ends_its_thread(exits: type[BaseException], whole: bool) -> None:
    """That breaks the engine, as it comes in the middle of its work; nobody waits for ever."""
    rig, _ = observed()

    class Leaving(Observer):
        def ended(self, generation: Generation, reason: str) -> None:
            raise exits

    rig.core.observers.append(Leaving())
    answers = [rig.ask(max_tokens=2), rig.ask(max_tokens=4)]
    for answer in answers:
        answer.generation.whole = whole
    with pytest.raises(exits):
        rig.run()
    assert rig.core.broken
    assert answers[0].output().finished
    assert answers[1].error is not None or answers[1].output().finished
