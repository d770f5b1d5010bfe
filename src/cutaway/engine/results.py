"""What a computed step has for each of its requests: first it is found, then it is given to them.

In: a step's logits and hidden states. Out: scores, samples or errors by piece; then the scheduler's tokens.
To find them changes no request, so until all are there the step can be cancelled and tried again.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from cutaway.engine.generation import Event, Generation
from cutaway.engine.outputs import Delta
from cutaway.errors import CutawayError
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.threads import ThreadTeam, float_environment
from cutaway.sampling.rows import SamplerRoom, sample_rows
from cutaway.sampling.sampler import Row, SampleResult
from cutaway.scheduler.step import Sampled, Step, StepPiece

NO_TOKEN: Final = 0
"""What is reported for a request that has ended without a token: the scheduler counts it, and nobody reads it."""


class Asking(NamedTuple):
    """What a piece's request wants of the step."""

    scores: dict[int, SampleResult]  # of the prompt's tokens, by position
    hidden: Floats | None  # [num_tokens, D], for an embedding
    rows: list[Row]  # one for each choice for which a token is sampled
    error: Exception | None = None  # met on the way; then there is nothing else


class PieceResult(NamedTuple):
    """What the step has for one piece's request, which does not know of it yet."""

    piece: StepPiece
    generation: Generation
    asking: Asking
    last_output: int  # among the step's output rows: from which its tokens are sampled; none of its own without outputs
    samples: list[SampleResult | CutawayError]  # of the rows


def find_results(
    step: Step,
    generations: Mapping[str, Generation],
    logits: Floats,
    hidden: Floats | None,
    team: ThreadTeam,
    room: SamplerRoom,
    are_scored: bool,
) -> list[PieceResult]:
    """For each piece, in their order; logits: [O, V], hidden: [T, D]. are_scored: all tokens' log-probabilities are
    wanted, whether their requests ask for them or not. What one request alone meets is in its result.
    """
    asked: list[tuple[StepPiece, Generation, Asking, int]] = []
    first = place = 0
    for piece in step.pieces:
        generation = generations[piece.sequence.request.id]
        states = None if hidden is None else hidden[place : place + piece.num_tokens]
        end = first + piece.num_outputs
        asking = _ask(piece, generation, logits[first:end], states, room, are_scored)
        asked.append((piece, generation, asking, end - 1))
        first, place = end, place + piece.num_tokens
    rows = [row for each in asked for row in each[2].rows]
    found = iter(sample_rows(rows, team, room) if rows else [])
    return [PieceResult(*each, list(islice(found, len(each[2].rows)))) for each in asked]


def _ask(
    piece: StepPiece,
    generation: Generation,
    logits: Floats,
    hidden: Floats | None,
    room: SamplerRoom,
    is_scored: bool,
) -> Asking:
    """logits, hidden: of the piece."""
    if generation.ended:
        return Asking({}, None, [])
    try:
        if generation.watched is not None and generation.watched.error is not None:
            raise generation.watched.error
        scores: dict[int, SampleResult] = {}
        if piece.sequence.scores_prompt and generation.asked.params.prompt_logprobs is not None:
            with float_environment():
                scores = generation.score(piece.start, logits, room.scratch())
        if generation.pool is not None:
            return Asking(scores, hidden, [])
        return Asking(scores, None, [generation.row(choice, logits[-1], is_scored) for choice in piece.choices])
    except Exception as error:
        return Asking({}, None, [], error)


class Taken(NamedTuple):
    """What a piece's request has taken of a step."""

    tokens: list[Sampled]  # for the scheduler, one for each of the piece's choices
    deltas: list[Delta]  # one for each token that counts, in the same order


def take_result(result: PieceResult, now: float, reserved: int, used: int) -> Taken:
    """Give the request its scores, states and tokens; what goes wrong with it ends it alone. now: on the engine's
    clock. reserved, used: positions of its KV.
    """
    piece, generation, asking, _, samples = result
    tokens: list[Sampled] = []
    deltas: list[Delta] = []
    try:
        if asking.error is not None:
            raise asking.error
        generation.scores.update(asking.scores)
        if generation.watched is not None and not generation.ended:
            generation.watched.watch.keep()
        if generation.pool is not None and not generation.ended:
            assert asking.hidden is not None
            generation.pool.add(piece.start, asking.hidden)
            if piece.choices:
                generation.tell(Event(generation.pooled(), now, reserved, used))
                tokens.append(Sampled(NO_TOKEN, ends=True))
        for choice, sample in zip(piece.choices, samples, strict=False):
            if generation.ended:
                break
            if isinstance(sample, CutawayError):
                raise sample
            delta = generation.take(choice, sample)
            generation.tell(Event(delta, now, reserved, used))
            tokens.append(Sampled(delta.token_ids[0], delta.finish_reason == "stop"))
            deltas.append(delta)
    except Exception as error:
        generation.fail(error)
    return Taken(tokens + [Sampled(NO_TOKEN)] * (len(piece.choices) - len(tokens)), deltas)
