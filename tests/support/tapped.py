"""An engine core over a real model without a tokenizer, for requests that are tapped and others beside them.

In: a model file, ids. Out: answers, and the tensors of an open run of the whole sequence, in one step, in a pool of its
own: what taps must have shown, whatever the schedule was.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.audit.taps import attention_rows
from cutaway.audit.taps.request import TapRequest
from cutaway.engine.core import EngineCore
from cutaway.engine.generation import Arrival
from cutaway.engine.outputs import RequestOutput
from cutaway.engine.received import Received
from cutaway.engine.requests import Requests
from cutaway.engine.runner import ModelRunner
from cutaway.engine.tap_limits import TapAdmission, TapLimits
from cutaway.formats.gguf import open_gguf
from cutaway.memory.block_manager import BlockManager
from cutaway.model.forward import rebind
from cutaway.sampling.params import SamplingParams
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.scheduler import Scheduler
from support.rig import Pages, Part, run_schedule

Rows = dict[tuple[str, int], npt.NDArray[Any]]  # (operation, layer) → what it wrote


class NoText:
    """A tokenizer whose ids have no text."""

    eos_ids: frozenset[int] = frozenset()

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def detokenizer(self, **options: object) -> "NoText":
        return self

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""

    def decode(self, ids: Sequence[int], **options: object) -> str:
        return ""


class TappedEngine:
    """A core that computes when it is told to, in this thread."""

    def __init__(self, runner: ModelRunner, limits: TapLimits, num_blocks: int, max_sequences: int) -> None:
        self.runner = runner
        blocks = BlockManager(num_blocks, runner.kv.page_length)
        policy_limits = SchedulerLimits(runner.max_step_tokens, max_sequences, runner.max_step_outputs, max_waiting=64)
        self.core = EngineCore(
            runner, Scheduler(blocks, policy_limits, ContinuousPolicy()), team=runner.team, taps=limits
        )
        tokenizer: Any = NoText(runner.vocab_size)
        self._requests = Requests(
            tokenizer, runner.context, 1, SamplingParams(), TapAdmission(runner, limits, "continuous")
        )
        self._tokenizer = tokenizer

    def ask(self, ids: Sequence[int], params: SamplingParams, taps: TapRequest | None = None) -> "Asking":
        """Submit a request."""
        asking = Asking()
        asking.received = self._requests.make((None, list(ids)), params, asking.arrivals.append, taps=taps)
        self.core.submit(asking.received.generation)
        return asking

    def run(self) -> None:
        """To the end of all."""
        while self.core.has_work:
            self.core.step()
        self.core.check()


class Asking:
    """A request that was submitted."""

    received: Received

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []

    @property
    def error(self) -> BaseException | None:
        return next((each for each in self.arrivals if isinstance(each, BaseException)), None)

    def output(self) -> RequestOutput:
        """All that came of it."""
        for arrival in self.arrivals:
            if isinstance(arrival, list):
                for event in arrival:
                    self.received.take(event)
        self.arrivals = [each for each in self.arrivals if isinstance(each, BaseException)]
        return self.received.output()


@contextmanager
def tapped_engine(
    path: Path,
    *,
    limits: TapLimits = TapLimits(),  # noqa: B008  (immutable)
    num_blocks: int = 64,
    kv_dtype: str = "f16",
    max_tokens: int = 24,
    context: int = 128,
) -> Iterator[TappedEngine]:
    """Of this model file, with room for 16 sequences."""
    with (
        open_gguf(path) as gguf,
        ModelRunner(
            gguf,
            threads=2,
            context=context,
            max_tokens=max_tokens,
            max_outputs=16,
            kv_dtype=kv_dtype,
            num_pages=num_blocks,
        ) as runner,
    ):
        yield TappedEngine(runner, limits, num_blocks, 16)


def whole_run(runner: ModelRunner, ids: Sequence[int]) -> Rows:
    """What each operation writes for the whole sequence in one step, the logits of all positions among them."""
    rows: Rows = {}

    def look(team: Any, name: str, layer: int, array: npt.NDArray[Any]) -> None:
        rows[name, layer] = np.array(array)

    step = [[Part(0, 0, len(ids))]]
    run_schedule(
        runner.loaded, [list(ids)], step, forward=rebind({"tap": look}), pages=Pages(data_type=runner.kv_dtype)
    )
    return rows


def mates(vocab_size: int, count: int) -> list[list[int]]:
    """Prompts of several lengths, some of which begin alike."""
    lengths = itertools.cycle((1, 3, 17, 30))
    return [[(7 * i + number % 3) % vocab_size for i in range(next(lengths))] for number in range(count)]


def spoil_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on one bit of one derived score of attention is wrong."""
    compiled = attention_rows.attention_scores

    def wrong(*arguments: Any) -> None:
        compiled(*arguments)
        scores = arguments[-1]
        scores[0, 0, 3] = np.nextafter(scores[0, 0, 3], np.float32(9))

    wrong.prepare = lambda *arguments: None  # type: ignore[attr-defined]
    monkeypatch.setattr(attention_rows, "attention_scores", wrong)
