"""An answer explained: each token's choice, what it would have been layer by layer, where it looked; and the engine's
steps that computed it.

In: an engine, a prompt, sampling parameters. Out: an ``Explanation``. The answer is an ordinary one, computed by the
engine among whatever else it has to do; then its rows are computed again, open, in a pool apart. That the same noise
chooses the same tokens from the open rows' logits is checked: else there is no explanation.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cutaway.audit.explain.attention import Looked, kept_of_head
from cutaway.audit.explain.replay import Replay, replay_bytes
from cutaway.audit.explain.steps import watched_steps
from cutaway.audit.layer_progress import Told, nobody
from cutaway.audit.lens import LensRow, lens_of
from cutaway.audit.request_ledger import SharedLedger, StepMeter
from cutaway.audit.walk.choice import Choice as SeenChoice
from cutaway.audit.walk.choice import see_choices
from cutaway.audit.walk.tokens import SeenToken, see_tokens
from cutaway.engine.choice import Choice
from cutaway.engine.llm import LLM
from cutaway.engine.outputs import FinishReason, RequestOutput, Statistics
from cutaway.engine.step_outcome import SeenStep
from cutaway.errors import ComputationError, InvalidRequestError, counted
from cutaway.memory.available import check_free
from cutaway.ops.cpu.threads import float_environment
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.sampling.params import SamplingParams, fresh_seed
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import sample_row
from cutaway.scheduler.decisions import Decision

GUESSES: Final = 3  # of the lens, of each layer
MOST_EXPLAINED: Final = 1024
"""Tokens of an answer: every one of them takes 0.1 s and some kilobytes."""


@dataclass(frozen=True)
class ExplainedToken:
    """One token of the answer."""

    position: int
    id: int
    piece: str
    text: str  # that became certain with it
    step: int  # of the engine, which chose it; -1: it was not seen
    choice: SeenChoice
    lens: tuple[LensRow, ...]  # the embedding, then each layer
    looked: Looked


@dataclass(frozen=True)
class Explanation:
    """An answer in full."""

    model: str
    numerics_version: int
    vocab_size: int
    num_layers: int
    num_heads: int
    params: dict[str, Any]  # those that are not at their defaults, with the seed in effect
    request_id: str  # the engine's, as in ``steps`` and ``decisions``
    prompt: tuple[SeenToken, ...]
    tokens: tuple[ExplainedToken, ...]
    pieces: dict[int, str]  # of every id that occurs
    text: str
    finish_reason: FinishReason | None
    statistics: Statistics
    steps: tuple[SeenStep, ...]
    decisions: tuple[Decision, ...]
    block_length: int  # positions of a page
    ledger: SharedLedger | None  # what the answer took, operation by operation; None where it wasn't measured

    @property
    def sequence(self) -> tuple[SeenToken, ...]:
        """Prompt and answer."""
        return (*self.prompt, *(SeenToken(each.position, each.id, each.piece, False) for each in self.tokens))


def explain(
    llm: LLM,
    prompt: Sequence[int],
    params: SamplingParams | None = None,
    *,
    meter: StepMeter | None = None,
) -> Explanation:
    """Answer, and explain the answer.

    prompt: ids. meter: has the answer's steps run timed, for its ledger. Raises what ``LLM.generate`` raises;
    InvalidRequestError for more than one choice, or an answer that is too long; CapacityError where memory does not
    suffice; ComputationError if the open run doesn't give the same tokens.
    """
    params = params or SamplingParams()
    check_explainable(params)
    params = dataclasses.replace(params, seed=fresh_seed() if params.seed is None else params.seed)
    check_memory(llm, len(prompt), params)
    with watched_steps(llm, meter) as seen:
        output = llm.generate([list(prompt)], params, use_tqdm=False)[0]
    return explain_output(llm, output, params, seen.steps, seen.decisions, seen.ledger(output.request_id))


def check_explainable(params: SamplingParams) -> None:
    """Raises InvalidRequestError for more than one choice, and for an answer that may be too long."""
    if params.n != 1:
        raise InvalidRequestError(f"n is {params.n}; one answer is explained at a time. Leave it out.", "n")
    if params.max_tokens is None or params.max_tokens > MOST_EXPLAINED:
        raise InvalidRequestError(
            f"max_tokens is {params.max_tokens}; an explanation has {MOST_EXPLAINED} tokens at most. Name fewer.",
            "max_tokens",
        )


def check_memory(llm: LLM, num_prompt: int, params: SamplingParams) -> None:
    """Before the answer: whether there is memory to explain it, however long it becomes. Raises CapacityError."""
    _check_memory(llm, num_prompt, min(params.max_tokens or MOST_EXPLAINED, llm.runner.context - num_prompt))


def _check_memory(llm: LLM, num_prompt: int, num_answer: int) -> None:
    config = llm.runner.config
    if num_answer > 0:
        length, kept = num_prompt + num_answer - 1, kept_of_head(num_answer, config)
        check_free(
            replay_bytes(llm.runner, length, num_answer, kept),
            f"explaining {num_answer} tokens behind {num_prompt}, beside the engine's own memory,",
            "Free memory, shorten the prompt, name a smaller max_tokens, or give the engine less (kv_tokens, memory).",
        )


def explain_output(
    llm: LLM,
    output: RequestOutput,
    params: SamplingParams,
    steps: Sequence[SeenStep] = (),
    decisions: Sequence[Decision] = (),
    ledger: SharedLedger | None = None,
    told: Told = nobody,
) -> Explanation:
    """Explain an answer that is there. params: those in effect, with ``output.seed``; told: how far it is. Raises as
    ``explain``.
    """
    runner, tokenizer = llm.runner, llm.tokenizer
    prompt, answer = output.prompt_token_ids, list(output.outputs[0].token_ids)
    _check_memory(llm, len(prompt), len(answer))
    asked = llm.requests.make((None, prompt), dataclasses.replace(params, seed=output.seed), lambda _: None).generation
    choice, scratch = Choice(0, asked.asked, tokenizer), SamplerScratch.allocate(runner.vocab_size)
    replay = Replay(runner, len(prompt) + len(answer) - 1)
    replay.compute(prompt[:-1])
    kept = kept_of_head(len(answer), runner.config)
    chosen_in = _steps_of(output.request_id, len(prompt), steps)
    tokens: list[ExplainedToken] = []
    chosen_from = [prompt[-1], *answer[:-1]] if answer else []
    for rows in replay.open_rows(len(prompt) - 1, chosen_from, kept, told):
        first = len(tokens)
        told(f"the lens of {counted(len(rows.logits), 'token')}")
        ids = answer[first : first + len(rows.logits)]
        lens = lens_of(runner, tokenizer.piece, rows.residual, ids, GUESSES)
        for place, token in enumerate(ids):
            row = choice.row(rows.logits[place], is_scored=False)
            with float_environment():
                sample = sample_row(row.logits, row.params, row.key, scratch, row.history)
            position = rows.start + place + 1
            if sample.token_id != token:
                raise ComputationError(
                    f"position {position} has token {token}, and the open run chooses {sample.token_id}; they must be "
                    "the same to the bit. The model in memory, or the machine, is damaged: load it again."
                )
            (seen,) = see_choices(row.logits, [row.params], row.key, scratch, row.history, tokenizer)
            delta = choice.take(sample)
            tokens.append(
                ExplainedToken(
                    position=position,
                    id=token,
                    piece=tokenizer.piece(token),
                    text=delta.text,
                    step=chosen_in.get(position, -1),
                    choice=seen,
                    lens=lens[place],
                    looked=rows.looked[place],
                )
            )
    return Explanation(
        model=runner.config.name,
        numerics_version=NUMERICS_VERSION,
        vocab_size=runner.vocab_size,
        num_layers=runner.config.num_layers,
        num_heads=runner.config.num_heads,
        params=_effective(dataclasses.replace(params, seed=output.seed)),
        request_id=output.request_id,
        prompt=see_tokens(tokenizer, prompt),
        tokens=tuple(tokens),
        pieces={each: tokenizer.piece(each) for each in sorted(_ids_of(prompt, tokens))},
        text=output.outputs[0].text,
        finish_reason=output.outputs[0].finish_reason,
        statistics=output.statistics,
        steps=tuple(steps),
        decisions=tuple(decisions),
        block_length=runner.kv.page_length,
        ledger=ledger,
    )


def _ids_of(prompt: Sequence[int], tokens: Sequence[ExplainedToken]) -> set[int]:
    """All that are named anywhere."""
    found = set(prompt)
    for token in tokens:
        choice = token.choice
        named = (*choice.candidates, choice.winner, choice.runner_up)
        found |= {each.id for each in named if each is not None}
        found |= {each.id for row in token.lens for each in row.guesses}
    return found


def _steps_of(request_id: str, prompt_length: int, steps: Sequence[SeenStep]) -> dict[int, int]:
    """The step that chose the token at a position."""
    return {
        piece.start + piece.num_tokens: seen.number
        for seen in steps
        for piece in seen.pieces
        if piece.request_id == request_id and piece.sampled and piece.start + piece.num_tokens >= prompt_length
    }


def _effective(params: SamplingParams) -> dict[str, Any]:
    """Those that are not at their defaults."""
    return {
        each.name: getattr(params, each.name)
        for each in dataclasses.fields(params)
        if getattr(params, each.name) != each.default
    }
