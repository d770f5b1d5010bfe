"""Continuous batching: in each step, sequences come and go, and prompt chunks mix with single tokens.

In: the state. Out: the pieces of a step, in the order of rank. (Orca, OSDI 2022; chunked prefill: Sarathi-Serve, 2024.)
"""

from collections.abc import Callable, Hashable

from cutaway.errors import counted
from cutaway.scheduler.request import Request
from cutaway.scheduler.sequence import SequenceState
from cutaway.scheduler.state import SchedulerState
from cutaway.scheduler.step import Step, StepPiece

Wanted = Callable[[SequenceState], bool]


class ContinuousPolicy:
    """First come, first served, by rank; when the pool is full, the last by rank is preempted.

    Invariants of a planned step. A sequence that has a piece is not preempted in this step: sequences get their pieces
    in the order of rank, and the victim is the last of all. The first by rank always gets a piece, since all blocks
    that others hold can be taken for it, and it fits alone. So someone advances in every step, and work that is
    thrown away is never the first's.
    """

    name = "continuous"
    shares_prompt = True
    frees_at_end = True

    def __init__(self, *, chunked_prefill: bool = True) -> None:
        """chunked_prefill: prompts are cut to what the decodes leave of the budget, and share their steps. Else steps
        of prompts and steps of decodes take turns.
        """
        self._chunked_prefill = chunked_prefill
        self._planned_prompts = False  # what the step that was planned last had
        self._computed_prompts = False

    def bucket(self, request: Request) -> Hashable:
        """All requests are in one bucket: any may share a step."""
        return None

    def plan(self, state: SchedulerState, step: Step) -> None:
        """Add the pieces of those that run, then of newcomers while there is room. Open requests and others don't share
        a step; where those whose turn it is have nothing to compute, the others come.
        """
        _admit_first(state)
        first = step.opens and any(sequence.request.is_open for sequence in state.running)
        for is_open in (first, not first):
            self._plan_kind(state, step, is_open)
            if step.pieces:
                return

    def _plan_kind(self, state: SchedulerState, step: Step, is_open: bool) -> None:
        """Add pieces of open requests, or of the others."""
        if self._chunked_prefill:
            _fill(state, step, lambda sequence: sequence.request.is_open is is_open)
            return

        def prompts(sequence: SequenceState) -> bool:
            return sequence.request.is_open is is_open and not sequence.decodes

        self._planned_prompts = False
        if not self._computed_prompts:
            _fill(state, step, prompts)
            self._planned_prompts = bool(step.pieces)
        if not step.pieces:
            _fill(state, step, lambda sequence: sequence.request.is_open is is_open and sequence.decodes, admits=False)
        if not step.pieces:
            _fill(state, step, prompts)
            self._planned_prompts = bool(step.pieces)

    def completed(self, state: SchedulerState) -> None:
        """Prompts and decodes take turns where they don't mix."""
        self._computed_prompts = self._planned_prompts

    def drop_ended(self, state: SchedulerState) -> None:
        """Nothing: whoever ends gives its blocks back at once."""


def _admit_first(state: SchedulerState) -> None:
    """Who goes before all that run doesn't wait for room: the last by rank make it."""
    first = state.waiting.first()
    if first is None or (state.running and state.running[0].rank < first.rank):
        return
    prefix = state.cached_prefix(first)
    needed = state.blocks.blocks_for(len(first.ids)) - prefix.num_blocks
    while state.running and (
        len(state.running) == state.limits.max_sequences or state.blocks.num_free_beside(prefix) < needed
    ):
        state.preempt(state.running[-1], f"youngest; {first.name} is the first of all and needs room")
    state.admit(first, prefix, _cached_part(needed, prefix.num_blocks))


def _fill(state: SchedulerState, step: Step, wanted: Wanted, *, admits: bool = True) -> None:
    """Pieces for the running sequences that are ``wanted``, then for newcomers."""
    left = state.limits.max_step_tokens - step.num_tokens
    outputs = state.limits.max_step_outputs - sum(piece.num_outputs for piece in step.pieces)
    decodes = sum(wanted(sequence) and sequence.decodes for sequence in state.running)  # that have no piece yet
    place = 0
    while place < len(state.running):
        sequence = state.running[place]
        place += 1
        if not wanted(sequence):
            continue
        decodes -= sequence.decodes
        want = min(sequence.remaining, left - decodes)  # every decode behind has a token of the budget
        if sequence.scores_prompt:  # everyone behind has a row of logits
            want = min(want, outputs - (len(state.running) - place))
        if want < 1:
            continue
        while (room := state.blocks.room(sequence.blocks, sequence.num_computed)) == 0:
            victim = state.running[-1]
            if victim is sequence:
                break
            decodes -= wanted(victim) and victim.decodes
            state.preempt(victim, f"youngest; {sequence.name} needs a block and none is free")
        if room == 0:
            state.log.write_change(state.step, sequence.name, "pauses", "needs a block, none is free, is the youngest")
            continue
        piece = _add_piece(state, step, sequence, min(want, room))
        left, outputs = left - piece.num_tokens, outputs - piece.num_outputs
    while admits and left > 0 and outputs > 0:
        newcomer = _admit_next(state)
        if newcomer is None:
            break
        if wanted(newcomer):
            most = outputs if newcomer.scores_prompt else left
            room = state.blocks.room(newcomer.blocks, newcomer.num_computed)
            piece = _add_piece(state, step, newcomer, min(newcomer.remaining, left, most, room))
            left, outputs = left - piece.num_tokens, outputs - piece.num_outputs


def _admit_next(state: SchedulerState) -> SequenceState | None:
    """Let in the first that waits, if it has a row, and blocks for all its ids besides what the running will need."""
    first = state.waiting.first()
    if first is None:
        return None
    rows = state.limits.max_sequences - sum(len(sequence.choices) for sequence in state.running)
    if rows < len(first.choices):
        reason = f"needs {len(first.choices)} of {counted(state.limits.max_sequences, 'row')}, {max(rows, 0)} free"
        state.log.write_change(state.step, first.name, "waits", reason)
        return None
    blocks = state.blocks
    prefix = state.cached_prefix(first)
    needed = blocks.blocks_for(len(first.ids)) - prefix.num_blocks
    owed = sum(_owed(state, sequence) for sequence in state.running)
    free = blocks.num_free_beside(prefix)
    if needed + owed > free:
        reason = f"needs {counted(needed, 'block')}, {free} free, {owed} of them for those that run"
        state.log.write_change(state.step, first.name, "waits", reason)
        return None
    state.admit(first, prefix, _cached_part(needed, prefix.num_blocks))
    return first


def _owed(state: SchedulerState, sequence: SequenceState) -> int:
    """Blocks that a running sequence will soon take: those of its ids, and one more if it will go beyond them."""
    held, blocks = len(sequence.blocks.blocks), state.blocks
    more = blocks.blocks_for(sequence.request.longest) > max(held, blocks.blocks_for(len(sequence.ids)))
    return max(blocks.blocks_for(len(sequence.ids)) - held, 0) + more


def _add_piece(state: SchedulerState, step: Step, sequence: SequenceState, count: int) -> StepPiece:
    """Give the sequence its piece of ``count`` tokens."""
    start = sequence.num_computed
    step.copies += state.blocks.prepare(sequence.blocks, start, start + count)
    choices = sequence.choices if count == sequence.remaining else ()
    piece = StepPiece(sequence, start, count, choices)
    step.pieces.append(piece)
    return piece


def _cached_part(needed: int, cached: int) -> str:
    return f"{cached} of {counted(cached + needed, 'block')} from the prefix cache"
