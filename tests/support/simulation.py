"""A simulation of scheduler and block manager without a model: a seed decides everything, so a failure replays.

The stand-in for the model is a function of all ids up to a position; the stand-in for the KV pool remembers, for each
place of each block, the value of that function which was written there. So a block that was shared wrongly, copied
wrongly or overwritten is seen by whoever reads it, and a request's answer can be computed alone and compared.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from cutaway.errors import CapacityError, QueueFullError
from cutaway.memory.block_manager import NOTHING_CACHED, BlockManager, CachedPrefix
from cutaway.memory.block_table import BlockTable
from cutaway.memory.hash_chain import HashChain
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.request import Hidden, Request
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.sequence import State
from cutaway.scheduler.static import StaticPolicy
from cutaway.scheduler.step import Sampled, Step

POLICIES = ("static", "bucketed", "continuous", "continuous, whole prompts")
VOCAB = 3  # few ids, so that prefixes are shared by chance too
END = 0  # the end token, where the model of the day ends at all


def make_policy(name: str) -> Policy:
    """The policy of this name, one of POLICIES."""
    if name in ("static", "bucketed"):
        return StaticPolicy(bucketed=name == "bucketed")
    return ContinuousPolicy(chunked_prefill=name == "continuous")


def states_of(salt: bytes, ids: list[int]) -> list[int]:
    """For each position, a number that depends on all ids up to it: what its keys and values stand for."""
    state, states = int.from_bytes(salt, "little") + 1, []
    for token in ids:
        state = (state * 6364136223846793005 + token * 1442695040888963407 + 1013904223) % (1 << 61)
        states.append(state)
    return states


def sample(state: int, choice: int) -> int:
    """The token of a choice after a position."""
    return ((state ^ (choice * 0x9E3779B97F4A7C15)) * 2862933555777941757 >> 40) % VOCAB


def answer_alone(request: Request, choice: int, ends: bool) -> list[int]:
    """What the choice is when nobody else is there."""
    ids = list(request.ids)
    while len(ids) < len(request.ids) + request.max_new_tokens:
        ids.append(sample(states_of(request.salt, ids)[-1], choice))
        if ends and ids[-1] == END:
            break
    return ids[len(request.ids) :]


@dataclass
class World:
    """What a seed decides."""

    seed: int
    policy: str = ""
    num_blocks: int = 0
    block_length: int = 0
    prefix_cache: bool = True
    limits: SchedulerLimits = field(default_factory=lambda: SchedulerLimits(1, 1))
    longest_prompt: int = 0
    longest_answer: int = 0
    choices: int = 1
    arrivals: float = 0.5  # chance of another request before a step
    aborts: float = 0.0  # chance of an abort at each of a step's phases
    failures: float = 0.0  # chance that a step fails
    deadlines: float = 0.0  # chance that a request has one
    ends: bool = True  # whether the end token ends
    scores: float = 0.0  # chance that a request wants its prompt scored
    keeps_kv: bool = True
    bulk: float = 0.0  # chance that a request comes from a list, which refills the queue


def world_of(seed: int, policy: str | None = None) -> World:
    """A world drawn at random: small pools, so that they are full most of the time."""
    rng = random.Random(f"world {seed}")
    policy = policy or rng.choice(POLICIES)
    rows = rng.choice((1, 2, 3, 4, 7))
    block_length = rng.choice((1, 2, 3, 4, 5, 16))
    longest_prompt, longest_answer = rng.choice(((4, 4), (12, 12), (40, 5), (5, 40), (23, 19)))
    least = -(-(longest_prompt + longest_answer - 1) // block_length)
    return World(
        seed=seed,
        policy=policy,
        # From what not every request fits in, to what all rows have room in.
        num_blocks=max(1, rng.choice((least * 3 // 4, least, least + 1, least * 2, least * rows))),
        block_length=block_length,
        prefix_cache=rng.random() < 0.75,
        limits=SchedulerLimits(
            max_step_tokens=rows + rng.choice((0, 1, 2, 5, 17, 60)),
            max_sequences=rows,
            max_step_outputs=rows + rng.choice((0, 1, 7, 1000)),
            max_waiting=rng.choice((1, 3, 10, 100)),
            max_waiting_tokens=rng.choice((10, 100, 10_000)),
            num_priorities=3,
            ageing=rng.choice((1, 5, 50)),
        ),
        longest_prompt=longest_prompt,
        longest_answer=longest_answer,
        choices=rng.choice((1, 1, rows, 2 * rows + 1)),
        arrivals=rng.choice((0.1, 0.5, 0.9)),
        aborts=rng.choice((0.0, 0.0, 0.02, 0.2)),
        failures=rng.choice((0.0, 0.0, 0.05)),
        deadlines=rng.choice((0.0, 0.1)),
        ends=rng.random() < 0.5,
        scores=rng.choice((0.0, 0.3)),
        keeps_kv=rng.random() < 0.8 or not policy.startswith("continuous"),
        bulk=rng.choice((0.0, 0.5)),
    )


class WatchedBlocks(BlockManager):
    """Counts the sequences that were let in with another's last, partly filled block."""

    tails_taken = 0

    def open(self, chain: HashChain, prefix: CachedPrefix = NOTHING_CACHED) -> BlockTable:
        self.tails_taken += prefix.tail is not None
        return super().open(chain, prefix)


class Simulation:
    """Runs a world and checks all that must hold. ``events`` counts what came to pass.

    After each step: the budget, the free and the held blocks together, the owner of each block that is written to, the
    content of each that is read, how long the oldest request waits. Before, amid or behind every ``check_every``-th
    step, and at the end: the scheduler's own check of every block and every sequence.
    """

    def __init__(self, world: World, check_every: int = 1) -> None:
        self.world, self.check_every = world, check_every
        self.checks = 0
        self.rng = random.Random(f"events {world.seed}")
        self.blocks = WatchedBlocks(world.num_blocks, world.block_length, prefix_cache=world.prefix_cache)
        policy = make_policy(world.policy)
        self.scheduler = Scheduler(self.blocks, world.limits, policy, keeps_kv=world.keeps_kv, num_decisions=100)
        self.memory: list[list[int | None]] = [[None] * world.block_length for _ in range(world.num_blocks)]
        self.now = 0.0
        self.steps = 0  # completed
        self.live: dict[str, Request] = {}
        self.later: deque[Request] = deque()  # of the list that refills the queue
        self.submitted_at: dict[str, int] = {}
        self.answers: dict[tuple[str, int], list[int]] = {}
        self.done: set[tuple[str, int]] = set()
        self.scored: dict[str, set[int]] = {}  # positions whose logits, or hidden states, came out
        self.prefixes = [[self.rng.randrange(VOCAB) for _ in range(world.longest_prompt)] for _ in range(3)]
        self.events: dict[str, int] = {}

    def run(self, num_requests: int) -> None:
        """Let so many requests arrive, and go on until all have ended."""
        arrived = 0
        while arrived < num_requests or self.later or self.scheduler.has_work:
            while arrived < num_requests and self.rng.random() < self.world.arrivals:
                if not self._arrive(f"r{arrived}"):
                    break
                arrived += 1
            self._step()
        self.scheduler.check()
        assert self.blocks.num_free == self.world.num_blocks, "blocks are lost"
        assert self.scheduler.num_waiting == self.scheduler.num_running == 0
        assert not self.live
        self._count("tails", self.blocks.tails_taken)

    def _count(self, event: str, times: int = 1) -> None:
        self.events[event] = self.events.get(event, 0) + times

    def _arrive(self, name: str) -> bool:
        """False if the queue is full: there will be another try."""
        world, rng = self.world, self.rng
        length = rng.randint(1, world.longest_prompt)
        shared = rng.randint(0, length)
        ids = rng.choice(self.prefixes)[:shared] + [rng.randrange(VOCAB) for _ in range(length - shared)]
        scored = rng.random() < world.scores
        hidden: Hidden | None = rng.choice(("last", "all")) if not scored and rng.random() < world.scores else None
        request = Request(
            id=name,
            ids=tuple(ids),
            max_new_tokens=1 if hidden else rng.randint(1, world.longest_answer),
            num_choices=1 if hidden else rng.randint(1, world.choices),
            priority=rng.randrange(world.limits.num_priorities),
            arrival=self.now,
            deadline=self.now + rng.uniform(0.1, 20) if rng.random() < world.deadlines else None,
            salt=rng.choice((b"", b"", b"a")),
            scores_prompt=scored,
            hidden=hidden,
            bulk=rng.random() < world.bulk,
        )
        if request.bulk:
            self.later.append(request)
            return True
        waiting = self._num_waiting(bulk=False)
        try:
            self._submit(request)
        except QueueFullError as error:
            self._count("queue full")
            return self._refused(error, waiting)
        return True

    def _refused(self, error: QueueFullError, waiting: int) -> bool:
        assert waiting > 0, "an empty queue is full"
        assert error.retry_after is None or error.retry_after >= 0
        return False

    def _refill(self) -> None:
        """What the engine's core does with its backlog."""
        while self.later:
            request = self.later[0]
            is_late = request.deadline is not None and request.deadline <= self.now
            if not is_late and not self.scheduler.has_place_for_bulk(request.num_choices, len(request.ids)):
                return
            self.later.popleft()
            if not is_late:
                self._count("refilled")
                self._submit(request)

    def _submit(self, request: Request) -> None:
        """Raises QueueFullError."""
        waiting, world = self._num_waiting(bulk=request.bulk), self.world
        try:
            self.scheduler.submit(request)
        except QueueFullError:
            raise
        except CapacityError:
            self._count("never fits")
            assert -(-(len(request.ids) + request.max_new_tokens - 1) // world.block_length) > world.num_blocks
            return
        self._count("submitted")
        assert waiting == 0 or waiting + request.num_choices <= world.limits.max_waiting
        self.live[request.id] = request
        self.scored[request.id] = set()
        self.submitted_at[request.id] = self.steps
        self.answers |= {(request.id, choice): [] for choice in range(request.num_choices)}

    def _num_waiting(self, *, bulk: bool) -> int:
        """Choices of one kind that wait."""
        waiting = [each for each in self.scheduler.sequences() if each.state is State.WAITING]
        return sum(len(each.choices) for each in waiting if each.request.bulk is bulk)

    def _maybe_abort(self, phase: str) -> None:
        if self.rng.random() >= self.world.aborts:
            return
        name = self.rng.choice([*self.live, "unknown"])
        known = name in self.live
        for state in self._states_of(name):
            self._count(f"aborted while {state}")
        assert self.scheduler.abort(name) is known
        assert self.scheduler.abort(name) is False
        self._count(f"aborted {phase}", known)
        self._forget(name)

    def _states_of(self, name: str) -> set[str]:
        """In what states the request's sequences are, in words."""
        mine = [each for each in self.scheduler.sequences() if each.request.id == name]
        waiting = [each for each in mine if each.state is State.WAITING]
        running = [each for each in mine if each.state is State.RUNNING]
        states = {
            "waiting": any(not each.was_preempted for each in waiting),
            "preempted": any(each.was_preempted for each in waiting),
            "in its prompt": any(0 < each.num_computed < len(each.request.ids) for each in running),
            "decoding": any(each.num_new_tokens and each.decodes for each in running),
            "forked": sum(bool(each.num_new_tokens) for each in running) > 1,
        }
        return {state for state, is_so in states.items() if is_so}

    def _forget(self, name: str) -> None:
        request = self.live.pop(name, None)
        if request is not None:
            for choice in range(request.num_choices):
                self.done.discard((name, choice))
                del self.answers[name, choice]

    def _step(self) -> None:
        self._maybe_abort("before a step")
        self.now += self.rng.choice((0.01, 0.1, 1.0))
        while (name := self.scheduler.overdue(self.now)) is not None:
            deadline = self.live[name].deadline
            assert deadline is not None
            assert deadline <= self.now
            self._count("expired")
            self.scheduler.abort(name)
            self._forget(name)
        before = self.scheduler.num_preemptions
        step = self.scheduler.schedule(self.now, self._refill)
        if self.scheduler.num_preemptions > before:
            self._count_preempted(step.number)
        assert all(each.deadline is None or each.deadline > self.now for each in self.live.values())
        self._check()
        self._check_budget(step)
        if step.num_tokens == 0:
            assert not self.scheduler.has_work, "there are requests, and nobody advances"
            return
        self._maybe_abort("in flight")
        if self.rng.random() < self.world.failures:
            self._fail(step)
            return
        sampled = self._compute(step)
        running = [piece.sequence.state is State.RUNNING for piece in step.pieces]
        ended = self.scheduler.complete(step, sampled)
        self.steps += 1
        self._check()
        for piece, tokens, alive in zip(step.pieces, sampled, running, strict=True):
            if alive:
                for choice, token in zip(piece.choices, tokens, strict=True):
                    self.answers[piece.sequence.request.id, choice].append(token.token)
        for name, choice, reason in ended:
            self._end(name, choice, reason)
        self._maybe_abort("after a step")
        self._check()

    def _count_preempted(self, step: int) -> None:
        names = [each.name for each in self.scheduler.log.read() if each.action == "preempted" and each.step <= step]
        now = [each.name for each in self.scheduler.log.read() if each.action == "preempted" and each.step == step]
        self._count("preempted", len(now))
        self._count("preempted again", sum(names.count(name) > 1 for name in now))

    def _check(self) -> None:
        """No block is lost, nobody waits for ever; and from time to time, all that the scheduler knows is looked at."""
        pool = self.blocks.pool
        assert pool.references.count(0) == pool.num_free, "the blocks that nobody holds are not those that are free"
        for name in self.live:  # the oldest
            assert self.steps - self.submitted_at[name] <= self._bound(self.world.limits.num_priorities - 1), (
                f"{name} never ends"
            )
            break
        # Three calls a step: where 3 doesn't divide ``check_every``, each of the three phases has its turn.
        self.checks += 1
        if self.checks % self.check_every == 0:
            self.scheduler.check()

    def _bound(self, priority: int) -> int:
        """Steps within which a request of this priority has ended."""
        longest = self.world.longest_prompt + self.world.longest_answer
        return self.world.limits.longest_wait(longest, priority, self.world.choices, keeps_kv=self.world.keeps_kv)

    def _check_budget(self, step: Step) -> None:
        limits = self.world.limits
        assert step.num_tokens <= limits.max_step_tokens, "the token budget is exceeded"
        outputs = sum(piece.num_outputs for piece in step.pieces)
        assert outputs <= limits.max_step_outputs, "too many rows of logits"
        assert len(step.pieces) <= limits.max_sequences, "too many rows"
        assert self.scheduler.num_running <= limits.max_sequences
        sequences = [piece.sequence for piece in step.pieces]
        assert len(set(map(id, sequences))) == len(sequences), "a sequence has two pieces"
        if self.world.policy == "continuous, whole prompts":
            assert len({piece.num_tokens == 1 and bool(piece.choices) for piece in step.pieces}) <= 1, "kinds mix"
        for piece in step.pieces:
            sequence = piece.sequence
            assert sequence.state is State.RUNNING
            assert piece.start == sequence.num_computed
            assert 1 <= piece.num_tokens <= len(sequence.ids) - piece.start
            assert bool(piece.choices) == (piece.start + piece.num_tokens == len(sequence.ids))
            assert self.world.block_length * len(sequence.blocks.blocks) >= piece.start + piece.num_tokens
            first, last = (
                place // self.world.block_length for place in (piece.start, piece.start + piece.num_tokens - 1)
            )
            for block in sequence.blocks.blocks[first : last + 1]:
                assert self.blocks.pool.references[block] == 1, f"{sequence.name} writes to what another holds, too"
        self._count("pads", step.num_pads)
        self._count("copies", len(step.copies))
        self._count("cached", sum(len(sequence.blocks.entries) > 0 for sequence in sequences))

    def _fail(self, step: Step) -> None:
        """Some of the step is done, wrongly, and it is cancelled."""
        self._count("failed")
        for source, target in step.copies[: self.rng.randint(0, len(step.copies))]:
            self.memory[target] = list(self.memory[source])
        for piece in step.pieces:
            for position in range(piece.start, piece.start + piece.num_tokens) if piece.sequence.table else ():
                number, offset = divmod(position, self.world.block_length)
                self.memory[piece.sequence.blocks.blocks[number]][offset] = None
        self.scheduler.cancel(step)
        self._check()

    def _compute(self, step: Step) -> list[list[Sampled]]:
        """The stand-in for the engine. Pieces of sequences that were aborted meanwhile have no table any more."""
        length = self.world.block_length
        for source, target in step.copies:
            self.memory[target] = list(self.memory[source])
        written: set[tuple[int, int]] = set()
        states = [states_of(piece.sequence.request.salt, piece.sequence.ids) for piece in step.pieces]
        for piece, values in zip(step.pieces, states, strict=True):
            if piece.sequence.table is None:
                continue
            for position in range(piece.start, piece.start + piece.num_tokens):
                number, offset = divmod(position, length)
                block = piece.sequence.table.blocks[number]
                assert (block, offset) not in written, "two pieces write to one place"
                written.add((block, offset))
                self.memory[block][offset] = values[position]
        sampled = []
        for piece, values in zip(step.pieces, states, strict=True):
            end = piece.start + piece.num_tokens
            if piece.sequence.table is not None:
                blocks = piece.sequence.table.blocks
                read = [self.memory[blocks[position // length]][position % length] for position in range(end)]
                assert read == values[:end], f"{piece.sequence.name} reads what is not its own"
            if piece.sequence.request.id in self.scored:
                rows = piece.num_outputs if piece.sequence.request.hidden is None else piece.num_tokens
                self.scored[piece.sequence.request.id] |= set(range(end - rows, end))
            tokens = [sample(values[end - 1], choice) for choice in piece.choices]
            sampled.append([Sampled(token, self.world.ends and token == END) for token in tokens])
        return sampled

    def _end(self, name: str, choice: int, reason: str) -> None:
        request = self.live[name]
        assert (name, choice) not in self.done, "a choice ends twice"
        self.done.add((name, choice))
        answer = self.answers[name, choice]
        assert answer == answer_alone(request, choice, self.world.ends), f"{name}[{choice}] differs from its run alone"
        stopped = self.world.ends and answer[-1] == END
        assert reason == ("stop" if stopped else "length")
        if request.scores_prompt:
            assert self.scored[name] >= set(range(len(request.ids))), "a token of the prompt was not scored"
            self._count("scored")
        if request.hidden is not None:
            wanted = set(range(len(request.ids))) if request.hidden == "all" else {len(request.ids) - 1}
            assert self.scored[name] >= wanted, "a token of the prompt has no hidden state"
            self._count(f"hidden {request.hidden}")
        assert self.steps - self.submitted_at[name] <= self._bound(request.priority), f"{name} waited too long"
        if all((name, each) in self.done for each in range(request.num_choices)):
            self._count("ended")
            self._forget(name)
