"""Requests that wait: what their ids take, and how those that the queue has no place for come to their turn."""

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from core_rig import LETTERS, Answer, Rig, asked
from prefix_runner import PrefixRunner

from cutaway import LLM, SamplingParams
from cutaway.engine.core import EngineCore
from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.generation import Arrival, Generation
from cutaway.engine.received import Received
from cutaway.engine.requests import Requests
from cutaway.engine.run_all import run_all, sink_of
from cutaway.errors import CapacityError, CutawayError, QueueFullError
from cutaway.scheduler.request import Request
from cutaway.scheduler.static import StaticPolicy
from support.patience import SECONDS, finishes


def waiting_bytes(llm: LLM, length: int) -> int:
    """What 20 requests with ``length`` ids each take while they wait."""
    rig = Rig(PrefixRunner(context=1 << 20), num_blocks=1 << 16, limits={"max_waiting_tokens": 1 << 30})
    requests = Requests(llm.tokenizer, 1 << 20, 1, SamplingParams())
    gc.collect()
    tracemalloc.start()
    try:
        kept = []
        for number in range(20):
            ids = [300 + (each * 7 + number) % 40_000 for each in range(length)]
            kept.append(requests.make((None, ids), SamplingParams(max_tokens=1), lambda arrival: None))
            rig.core.submit(kept[-1].generation)
        del ids
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_an_id_that_waits_takes_few_bytes(smollm2_path: Path) -> None:
    """As Python's integers in a list it would be 36: 38 MB for a full queue."""
    with LLM(smollm2_path, threads=1, max_model_len=64) as llm:
        short, long = waiting_bytes(llm, 2_000), waiting_bytes(llm, 4_000)
    assert (long - short) / (20 * 2_000) < 10


class Crowd:
    """Lists of requests for a core, as ``LLM.generate`` has them, and what came of them."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.arrivals = rig, SimpleQueue[tuple[int, Arrival]]()
        self._number = 0

    def requests(self, count: int, prompt: list[int] | None = None, **params: Any) -> list[Received]:
        """So many, greedy, with an answer of one token unless said."""
        made = []
        for number in range(count):
            self._number += 1
            wanted = asked(prompt or [1 + number % 40], 1, (), self.rig.runner.context, **{"max_tokens": 1, **params})
            sink = sink_of(self.arrivals, number)
            generation = Generation(f"crowd {self._number}", wanted, LETTERS, sink, whole=True)
            made.append(Received(generation, None, LETTERS, 1))
        return made

    def hold(self, requests: list[Received]) -> None:
        """Give them to the core, whose steps the test makes."""
        self.rig.core.hold([each.generation for each in requests])


def actions(core: EngineCore) -> list[tuple[str, str]]:
    """Who and what, of each decision."""
    return [(each.name, each.action) for each in core.scheduler.log.read()]


@pytest.mark.parametrize("max_waiting", [1, 3, 1024])
@pytest.mark.parametrize("policy", ["continuous", "static"])
def test_few_places_to_wait_cost_no_step_and_nobody_is_called_refused(max_waiting: int, policy: str) -> None:
    """100 prompts of one token in 32 rows are 4 steps, however few may wait; each is admitted once, and ends."""
    policies = {"policy": StaticPolicy()} if policy == "static" else {}
    rig = Rig(PrefixRunner(), max_sequences=32, limits={"max_waiting": max_waiting}, **policies)
    crowd = Crowd(rig)
    requests = crowd.requests(100)
    engine = EngineThread(rig.core, "closed")
    ended: list[None] = []
    try:
        finishes(lambda: run_all(engine, requests, crowd.arrivals, lambda: ended.append(None)))
        assert engine.call(lambda core: core.totals.steps).result(SECONDS) == 4
    finally:
        engine.close()
    assert len(ended) == 100
    assert all(len(each.output().outputs[0].token_ids) == 1 for each in requests)
    names = [each.generation.request_id for each in requests]
    assert sorted(actions(rig.core)) == sorted((name, what) for name in names for what in ("admitted", "ended"))


def test_a_generate_of_thousands_takes_nobodys_place(smollm2_path: Path) -> None:
    """With one place to wait, another thread's requests are all let in, and end long before."""
    params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
    with LLM(smollm2_path, threads=1, max_model_len=64, max_num_seqs=4, max_waiting=1) as llm:
        errors: list[str] = []

        def generate_thousands() -> None:
            try:
                llm.generate([[5 + number] for number in range(4000)], params)
            except CutawayError as error:
                errors.append(str(error))

        thread = threading.Thread(target=generate_thousands, daemon=True)
        thread.start()
        while llm.totals().sampled < 4:
            time.sleep(0.001)
        others = [llm.stream([7, 8], params).run() for _ in range(5)]
        others += llm.generate([[7, 8], [8, 9]], params)  # a list of its own has its turn, too
        assert [len(each.outputs[0].token_ids) for each in others] == [2] * 7
        assert llm.totals().sampled < 4000
        assert not [each for each in llm.decisions() if each.action == "refused"]
    finishes(thread.join)
    assert errors == ["this LLM is closed. Load the model again."]


def test_lists_take_turns() -> None:
    rig = Rig(PrefixRunner(), max_sequences=1, limits={"max_waiting": 1})
    crowd = Crowd(rig)
    for count in (3, 1, 2):
        crowd.hold(crowd.requests(count))
    rig.run()
    admitted = [name for name, action in actions(rig.core) if action == "admitted"]
    assert admitted == [f"crowd {number}" for number in (1, 4, 5, 2, 6, 3)]


def test_who_is_held_back_waits_from_the_start(smollm2_path: Path) -> None:
    """Its time in the backlog is time that it waits."""
    rig = Rig(PrefixRunner(), max_sequences=1, limits={"max_waiting": 1})
    crowd = Crowd(rig)
    requests = crowd.requests(4)
    crowd.hold(requests)
    while rig.core.has_work:
        rig.core.step()
        rig.clock.now += 10.0
        rig.core.check()
    for number, request in enumerate(requests):
        events = crowd.arrivals.get(timeout=SECONDS)[1]
        assert isinstance(events, list)
        request.take(events[0])
        assert request.statistics().waiting_seconds == 10.0 * number


def test_what_can_never_run_fails_alone_and_the_others_are_aborted() -> None:
    rig = Rig(PrefixRunner(), num_blocks=2, limits={"max_waiting": 1})
    crowd = Crowd(rig)
    requests = [*crowd.requests(3, max_tokens=4), *crowd.requests(1, [3] * 20, max_tokens=9), *crowd.requests(50)]
    engine = EngineThread(rig.core, "closed")
    try:
        with pytest.raises(CapacityError, match="20 prompt tokens and 9 new need"):
            finishes(lambda: run_all(engine, requests, crowd.arrivals, lambda: None))
        assert not engine.call(lambda core: core.generations()).result(SECONDS)
        refused = [name for name, action in actions(rig.core) if action == "refused"]
        assert refused == [requests[3].generation.request_id]
    finally:
        engine.close()


def end_by_abort(core: EngineCore, requests: list[Received]) -> None:
    for each in requests:
        core.abort(each.generation)


def end_by_error(core: EngineCore, requests: list[Received]) -> None:
    core.fail(MemoryError("of the test"))


def break_it(core: EngineCore, requests: list[Received]) -> None:
    core.scheduler.blocks.pool.allocate()
    core.rest()


@pytest.mark.parametrize("ends", [end_by_abort, end_by_error, break_it])
def test_the_end_reaches_those_that_are_held_back(ends: Callable[[EngineCore, list[Received]], None]) -> None:
    """Each is told once, nothing is left to do, and the next list is computed, or refused by a broken engine."""
    rig = Rig(PrefixRunner(), max_sequences=2, limits={"max_waiting": 1})
    crowd = Crowd(rig)
    requests = crowd.requests(20, max_tokens=5)
    crowd.hold(requests)
    rig.core.step()
    assert len(rig.core.generations()) == 20
    ends(rig.core, requests)
    assert not rig.core.has_work
    assert sorted(crowd.arrivals.get(timeout=SECONDS)[0] for _ in requests) == list(range(20))
    assert crowd.arrivals.empty()
    if rig.core.broken:
        with pytest.raises(CutawayError, match="lost track"):
            crowd.hold(crowd.requests(1))
        return
    crowd.hold(crowd.requests(1))
    rig.run()
    assert isinstance(crowd.arrivals.get(timeout=SECONDS)[1], list)


def test_a_deadline_ends_those_that_are_held_back() -> None:
    """With the next step, though the queue has no place for them, and those of another list are before them."""
    rig = Rig(PrefixRunner(), max_sequences=1, limits={"max_waiting": 1})
    crowd = Crowd(rig)
    limited, others = crowd.requests(10), crowd.requests(5, max_tokens=9)
    for number, each in enumerate(limited):
        each.generation.deadline = 5.0 if number < 7 else 6.0
    crowd.hold(others)
    crowd.hold(limited)
    rig.core.step()
    for now, ended in ((5.0, 7), (6.0, 10)):
        rig.clock.now = now
        rig.core.step()
        assert [each.generation.ended for each in limited] == [True] * ended + [False] * (10 - ended)
    assert [each.generation.ended for each in others] == [False] * 5
    rig.run()
    assert sum(action == "admitted" for _, action in actions(rig.core)) == 5


def test_who_is_refused_for_now_stays_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that is not free now, besides a place: it is asked for again, and an abort still ends it."""
    rig = Rig(PrefixRunner(), max_sequences=2)
    crowd = Crowd(rig)
    requests = crowd.requests(4, max_tokens=3)
    submit, tries = rig.core.scheduler.submit, list[str]()

    def submit_later(request: Request) -> None:
        tries.append(request.id)
        if request.id in ("crowd 2", "crowd 3") and rig.core.scheduler.has_work:
            raise QueueFullError("not while another runs")
        submit(request)

    monkeypatch.setattr(rig.core.scheduler, "submit", submit_later)
    crowd.hold(requests)
    rig.core.step()
    assert tries[:2] == ["crowd 1", "crowd 2"]
    assert set(tries[2:]) == {"crowd 2"}
    rig.core.abort(requests[1].generation)
    assert requests[1].generation.ended
    rig.run()
    ended = [crowd.arrivals.get(timeout=SECONDS) for _ in requests]
    reasons = {number: events[-1].delta.finish_reason for number, events in ended if isinstance(events, list)}
    assert reasons == {0: "length", 1: "abort", 2: "length", 3: "length"}


def test_a_refusal_of_others_counts_their_kind_alone() -> None:
    """Whoever comes while a list is held back is refused only where others like him fill the queue."""
    rig = Rig(PrefixRunner(), max_sequences=1, limits={"max_waiting": 2})
    crowd = Crowd(rig)
    crowd.hold(crowd.requests(20, max_tokens=5))
    rig.core.step()
    answers: list[Answer] = [rig.ask(max_tokens=2) for _ in range(2)]
    with pytest.raises(QueueFullError, match="2 choices with 10 tokens wait already"):
        rig.ask()
    rig.run()
    assert [len(each.ids) for each in answers] == [2, 2]
