"""An engine core over a runner without a model, requests for it, and what each would be alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from prefix_runner import PrefixRunner

from cutaway.engine.choice import Asked
from cutaway.engine.core import EngineCore
from cutaway.engine.generation import Arrival, Generation
from cutaway.engine.outputs import CompletionOutput, Delta, RequestOutput
from cutaway.engine.pooling import Pooling
from cutaway.engine.received import Received
from cutaway.engine.step_batch import ScratchPage
from cutaway.engine.steps import TapName
from cutaway.engine.watched import StepRows, Watched
from cutaway.memory.block_manager import BlockManager
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.forbidden import NO_BAD_WORDS, forbidden_ids
from cutaway.sampling.history import History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, sample_row
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.scheduler import Scheduler

PROMPT = [7, 0, 49, 7, 12]


class Letters:
    """A tokenizer, as far as the engine needs one: each id is a text of its own."""

    eos_ids: frozenset[int] = frozenset()

    def detokenizer(self, **options: object) -> "Letters":
        return self

    def push(self, token: int) -> str:
        return chr(0x4E00 + token)

    def flush(self) -> str:
        return ""

    def decode(self, ids: Sequence[int], **options: object) -> str:
        return "".join(map(self.push, ids))


LETTERS: Any = Letters()


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Rig:
    """A core with a pool of ``num_blocks`` blocks."""

    runner: PrefixRunner
    num_blocks: int = 100
    policy: Policy = field(default_factory=ContinuousPolicy)
    max_sequences: int = 4
    prefix_cache: bool = True
    keeps_kv: bool = True
    limits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runner = self.runner
        runner.max_step_outputs = max(runner.max_step_outputs, self.max_sequences)
        self.blocks = BlockManager(self.num_blocks, runner.page_length, prefix_cache=self.prefix_cache)
        limits = SchedulerLimits(
            runner.max_step_tokens, self.max_sequences, max_step_outputs=runner.max_step_outputs, **self.limits
        )
        scheduler = Scheduler(self.blocks, limits, self.policy, keeps_kv=self.keeps_kv)
        scratch = ScratchPage(self.num_blocks, runner.page_length)
        self.clock = Clock()
        self.core = EngineCore(runner, scheduler, scratch, self.clock)
        self._number = 0

    def ask(
        self,
        prompt: Sequence[int] = PROMPT,
        seed: int = 1,
        stop_ids: Iterable[int] = (),
        priority: int = 0,
        deadline: float | None = None,
        pooling: Pooling | None = None,
        watch: "SeenTokens | None" = None,
        **params: Any,
    ) -> "Answer":
        """Submit a request. pooling: for an embedding, one token of whose answer the scheduler takes for its end.
        watch: who looks at its steps.
        """
        wanted = asked(prompt, seed, stop_ids, self.runner.context, **params)
        if pooling is not None:
            wanted = replace(wanted, pooling=pooling, max_new_tokens=1)
        answer = Answer(wanted, str(self._number))
        answer.generation.watched = None if watch is None else Watched(watch)
        answer.generation.priority, answer.generation.deadline = priority, deadline
        self._number += 1
        self.core.submit(answer.generation)
        return answer

    def run(self) -> None:
        """Steps until nothing is left to do; then nothing may be lost."""
        while self.core.has_work:
            self.core.step()
            self.core.check()
        assert self.blocks.num_free == self.num_blocks
        assert self.core.generations() == []


class SeenTokens:
    """A ``Watch`` that keeps the tokens and the logits of its rows, by position."""

    def __init__(self, num_bytes: int = 1, needs_all_logits: bool = False, fails: str = "") -> None:
        """fails: the operation at which it raises, or its own method."""
        self.num_bytes, self.needs_all_logits, self.fails = num_bytes, needs_all_logits, fails
        self.tokens: dict[int, int] = {}
        self.logits: dict[int, bytes] = {}
        self._new: tuple[dict[int, int], dict[int, bytes]] = {}, {}

    def describe(self) -> str:
        return "of the test"

    def prepare(self) -> None:
        pass

    def begin(self, rows: Sequence[StepRows]) -> None:
        self._fail_at("begin")
        (self._rows,), self._new = rows, ({}, {})

    @property
    def wanted(self) -> set[TapName]:
        self._fail_at("wanted")
        return {("embed", -1), ("logits", -1)}

    def see(self, name: str, layer: int, array: Any) -> None:
        self._fail_at(name)
        _, batch, tokens, outputs = self._rows
        if name == "embed":
            self._new[0].update(zip(batch.positions[tokens].tolist(), array[tokens].tolist(), strict=True))
        else:
            positions = batch.positions[batch.output_rows[outputs]].tolist()
            self._new[1].update(zip(positions, [row.tobytes() for row in array[outputs]], strict=True))

    def _fail_at(self, name: str) -> None:
        if name == self.fails:
            raise ZeroDivisionError(f"of the test, at {name}")

    def keep(self) -> None:
        for kept, new in zip((self.tokens, self.logits), self._new, strict=True):
            assert all(kept.get(position, value) == value for position, value in new.items()), "another sequence's rows"
            kept.update(new)

    def result(self) -> dict[str, Any]:
        return {}


def asked(prompt: Sequence[int], seed: int, stop_ids: Iterable[int], context: int, **params: Any) -> Asked:
    """What a request asks for."""
    checked = SamplingParams(**params)
    left = context - len(prompt)
    most = left if checked.max_tokens is None else min(left, checked.max_tokens)
    return Asked(list(prompt), checked, seed, most, frozenset(stop_ids), NO_BAD_WORDS)


class Answer:
    """A request and what came of it."""

    def __init__(self, asked: Asked, number: str, tokenizer: Any = LETTERS) -> None:
        self.arrivals: list[Arrival] = []
        self.generation = Generation(number, asked, tokenizer, self.arrivals.append)
        self.received = Received(self.generation, None, tokenizer, 1)
        self.deltas: list[Delta] = []

    @property
    def error(self) -> BaseException | None:
        """What it failed with."""
        errors = [each for each in self.arrivals if isinstance(each, BaseException)]
        assert len(errors) <= 1
        return errors[0] if errors else None

    def output(self) -> RequestOutput:
        """All that came so far."""
        for arrival in self.arrivals:
            if isinstance(arrival, list):
                self.deltas += [self.received.take(event) for event in arrival]
        self.arrivals = [each for each in self.arrivals if isinstance(each, BaseException)]
        return self.received.output()

    def choices(self) -> list[CompletionOutput]:
        """The choices so far."""
        return self.output().outputs

    @property
    def ids(self) -> list[int]:
        """The ids of the only choice."""
        (choice,) = self.choices()
        return choice.token_ids


def answer_alone(runner: PrefixRunner, asked: Asked, choice: int = 0) -> list[SampleResult]:
    """What a choice is, token by token over the whole prefix, without any engine."""
    ids, found = list(asked.prompt_ids), []
    scratch = SamplerScratch.allocate(runner.vocab_size)
    with float_environment():
        while len(found) < asked.max_new_tokens:
            output = np.array(ids[len(asked.prompt_ids) :], np.int32)
            prompt = np.array(asked.prompt_ids, np.int32)
            history = History(prompt, output, forbidden_ids(asked.params, asked.bad_words, output, asked.stop_ids))
            key = NoiseKey(asked.seed, choice, len(ids))
            found.append(sample_row(runner.logits_after(ids), asked.params, key, scratch, history))
            ids.append(found[-1].token_id)
            if ids[-1] in asked.stop_ids:
                break
    return found
