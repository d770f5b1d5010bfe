"""When nothing is left to do, the engine's thread checks that no block and no request is lost; if one is, it says so to
whoever comes next, and computes nothing any more.
"""

import time

import pytest
from core_rig import PROMPT, Answer, Rig, asked
from prefix_runner import PrefixRunner

from cutaway.engine import engine_thread
from cutaway.engine.engine_thread import EngineThread
from cutaway.errors import CutawayError
from cutaway.memory.hash_chain import HashChain
from cutaway.ops.cpu.arrays import Batch, Floats
from support.patience import SECONDS


class Idle:
    """An engine over a runner without a model, and how often it has checked itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = Rig(PrefixRunner())
        self.checks = 0
        check = self.rig.core.check

        def counted() -> None:
            self.checks += 1
            check()

        monkeypatch.setattr(self.rig.core, "check", counted)
        self.engine = EngineThread(self.rig.core, "closed")

    def ask(self, number: int) -> CutawayError | None:
        """Submit a request, wait for its end and for a check; the error, if it is refused."""
        answer = Answer(asked(PROMPT, number, (), self.rig.runner.context, max_tokens=4), f"{number}")
        before, end = self.checks, time.monotonic() + SECONDS
        admission = self.engine.submit([answer.generation]).result(SECONDS)
        if admission.error is not None:
            return admission.error
        while not (answer.generation.ended and self.checks > before):
            assert time.monotonic() < end, "the engine has not checked itself"
            time.sleep(0.001)
        assert len(answer.ids) == 4
        return None


@pytest.mark.parametrize(
    "damage",
    [
        "a block that nobody gave back",
        "a queue that counts choices wrongly",
        "a queue that counts tokens wrongly",
        "a table beyond the pool",
        "nothing",
    ],
)
def test_what_is_lost_is_noticed_when_nothing_is_left_to_do(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch)
    engine = idle.engine
    try:
        assert idle.ask(0) is None
        if damage == "a block that nobody gave back":
            engine.call(lambda core: core.scheduler.blocks.pool.allocate()).result(SECONDS)
        elif damage.startswith("a queue"):
            name = "num_choices" if "choices" in damage else "num_tokens"
            engine.call(lambda core: setattr(core.scheduler._state.waiting.load(bulk=False), name, 7)).result(SECONDS)
        elif damage == "a table beyond the pool":
            engine.call(lambda core: core.scheduler.blocks.open(HashChain(b"", 4)).blocks.append(10**6)).result(SECONDS)
        assert idle.ask(1) is None
        engine.call(lambda core: None).result(SECONDS)
        assert idle.checks == 2, "once when there is nothing left to do, not for every command"
        if damage == "nothing":
            assert idle.ask(2) is None
        else:
            for number in (2, 3):
                error = str(idle.ask(number))
                assert error.startswith("the engine has lost track of its memory: ")
                assert error.endswith(" Load the model again.")
    finally:
        engine.close()


def test_damage_amid_a_step_is_told_to_all_and_the_thread_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds any block any more: what runs ends with an error, and who comes next hears at once."""
    idle = Idle(monkeypatch)
    step = idle.rig.runner.step

    def hurt(batch: Batch) -> Floats:
        references = idle.rig.blocks.pool.references
        references[:] = [0] * len(references)
        return step(batch)

    monkeypatch.setattr(idle.rig.runner, "step", hurt)
    answers = [Answer(asked(PROMPT, seed, (), idle.rig.runner.context, max_tokens=4), str(seed)) for seed in (0, 1)]
    try:
        idle.engine.submit([answer.generation for answer in answers]).result(SECONDS)
        end = time.monotonic() + SECONDS
        while not all(answer.generation.ended for answer in answers):
            assert time.monotonic() < end, "a request was never told"
            time.sleep(0.001)
        late = Answer(answers[0].generation.asked, "2")
        error = idle.engine.submit([late.generation]).result(SECONDS).error
        assert str(error).startswith("the engine has lost track of its memory: ")
        assert all(isinstance(answer.error, CutawayError) for answer in answers)
    finally:
        idle.engine.close()


def test_requests_that_follow_one_another_wait_for_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when nothing has come for a while. A rest of a minute stands for requests that come quickly."""
    monkeypatch.setattr(engine_thread, "REST", 60.0)
    idle = Idle(monkeypatch)
    try:
        for number in range(5):
            answer = Answer(asked(PROMPT, number, (), idle.rig.runner.context, max_tokens=4), f"{number}")
            idle.engine.submit([answer.generation]).result(SECONDS)
            end = time.monotonic() + SECONDS
            while not answer.generation.ended:
                assert time.monotonic() < end, "the request has not ended"
                time.sleep(0.001)
        assert idle.engine.call(lambda core: idle.checks).result(SECONDS) == 0
    finally:
        idle.engine.close()


def test_what_is_lost_stands_in_the_log_before_anybody_asks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    idle = Idle(monkeypatch)
    core = idle.rig.core
    try:
        assert idle.ask(0) is None
        assert not core.broken
        assert not caplog.records
        idle.engine.call(lambda core: core.scheduler.blocks.pool.allocate()).result(SECONDS)
        assert idle.ask(1) is None
        end = time.monotonic() + SECONDS
        while not core.broken:
            assert time.monotonic() < end, "the engine has not noticed"
            time.sleep(0.001)
        (record,) = caplog.records
        assert record.name == "cutaway.engine"
        assert record.getMessage().startswith("the engine has lost track of its memory: ")
    finally:
        idle.engine.close()
