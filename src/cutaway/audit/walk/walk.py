"""A walk: one generation with everything that happens on the way, as data.

In: a runner, a tokenizer, the prompt's ids, sampling parameters. Out: ``Walk``, a tree of frozen records: the tokens,
the first pass of the forward in full, each new token's choice, what it looked at, and the ledgers. Nothing here prints.
The tokens are those of an ordinary generation with the same parameters and seed, since the open forward and the open
sampler give the same bits as the closed ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cutaway.audit.ledger import LEAST_REPEATS, Ledger, measure_ledger
from cutaway.audit.lens import lens_bytes
from cutaway.audit.limits import MachineLimits
from cutaway.audit.taps.attention_rows import prepare_attention_rows
from cutaway.audit.walk.attention import Looks
from cutaway.audit.walk.choice import Choice, see_choices
from cutaway.audit.walk.forward import SeenForward, average_of_layers, run_open, see_forward, see_looks
from cutaway.audit.walk.tokens import CutCharacter, SeenToken, cut_characters, see_tokens
from cutaway.engine.outputs import FinishReason
from cutaway.engine.prompts import check_prompt
from cutaway.engine.runner import ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.memory.available import check_free
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.arrays import Batch
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.sampling.history import NO_IDS, History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey
from cutaway.tokenizer.tokenizer import Tokenizer

LONGEST_PROMPT: Final = 2048
"""Tokens. Nothing breaks beyond it, but each token's attention is shown position by position."""

MOST_TEMPERATURES: Final = 3
DECODE_REPEATS: Final = 15


@dataclass(frozen=True)
class WalkSettings:
    """How tokens are chosen and when it ends. Raises InvalidRequestError as ``SamplingParams`` does."""

    temperatures: tuple[float, ...]  # the walk goes on with the first one's choices; the others are shown beside them
    top_k: int
    top_p: float
    min_p: float
    seed: int
    max_tokens: int
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.temperatures) <= MOST_TEMPERATURES:
            raise InvalidRequestError(
                f"there are {len(self.temperatures)} temperatures; 1 to {MOST_TEMPERATURES} fit side by side. Name "
                "fewer.",
                "temperature",
            )
        self.params()

    def params(self) -> tuple[SamplingParams, ...]:
        """The parameters of an ordinary generation, for each temperature."""
        return tuple(
            SamplingParams(
                temperature=each,
                top_k=self.top_k,
                top_p=self.top_p,
                min_p=self.min_p,
                repetition_penalty=self.repetition_penalty,
                presence_penalty=self.presence_penalty,
                frequency_penalty=self.frequency_penalty,
                seed=self.seed,
                max_tokens=self.max_tokens,
            )
            for each in self.temperatures
        )


@dataclass(frozen=True)
class NewToken:
    """A generated token: the row of the position before it was computed, and it was chosen from that row's logits."""

    position: int
    id: int
    piece: str
    text: str  # that became certain with it; empty while a character is incomplete, and for the end of the answer
    computed: int  # tokens that went through the forward for it
    context: int  # positions that the last of them attended
    looks: Looks  # of that last one, averaged over all heads and layers
    choices: tuple[Choice, ...]  # for each temperature, of the same logits; the first is the one that counts


@dataclass(frozen=True)
class WalkTimes:
    """What the steps cost, measured by repeating them closed and timed."""

    limits: MachineLimits
    prefill: Ledger  # the prompt, or its last chunk
    decode: Ledger | None  # the first new token's own pass; None where there was none


@dataclass(frozen=True)
class Walk:
    """One generation in its five steps."""

    name: str | None  # in the catalogue; None for a file that was named by its path
    model: str  # the file's own title
    numerics_version: int
    dimensions: Mapping[str, int]  # of the shape table; T and O are those of a step at most
    vocab_size: int
    tied_head: bool  # the head is the embedding matrix itself
    kv_bytes_per_token: int  # in the KV cache, all layers
    settings: WalkSettings
    threads: int
    prompt: tuple[SeenToken, ...]
    cut: tuple[CutCharacter, ...]  # of the prompt's text
    written: tuple[int, int] | None  # which of the prompt's tokens, first and end, are the user's text; None: unknown
    forward: SeenForward  # of the prompt, or of its last chunk
    new_tokens: tuple[NewToken, ...]
    text: str
    finish_reason: FinishReason
    times: WalkTimes | None

    @property
    def tokens(self) -> int:
        """Prompt and answer."""
        return len(self.prompt) + len(self.new_tokens)


class TimesWanted(NamedTuple):
    """What measuring takes."""

    weight_bytes: Mapping[str, int]  # of each matrix, under its name in the file
    limits: MachineLimits


def walk(
    runner: ModelRunner,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    settings: WalkSettings,
    *,
    name: str | None = None,
    written: tuple[int, int] | None = None,
    measure: TimesWanted | None = None,
) -> Walk:
    """Generate, and look at everything. The runner's KV pool is this walk's alone while it lasts.

    name, written: see ``Walk``. measure: None leaves the times out. Raises InvalidRequestError for a prompt that is too
    long to be shown, else what an ordinary generation raises.
    """
    check_prompt(prompt_ids, runner.context, runner.vocab_size)
    if len(prompt_ids) > LONGEST_PROMPT:
        raise InvalidRequestError(
            f"the prompt has {len(prompt_ids)} tokens; a walk shows {LONGEST_PROMPT} at most. Shorten it: the steps "
            "are the same.",
            "prompt",
        )
    rows = 1 + runner.config.num_layers
    check_free(lens_bytes(runner, rows), f"the lens over {rows} rows", "Free memory, or take a smaller context.")
    found = _generate(runner, tokenizer, prompt_ids, settings)
    return Walk(
        name=name,
        model=runner.config.name,
        numerics_version=NUMERICS_VERSION,
        dimensions=runner.dimensions,
        vocab_size=runner.vocab_size,
        tied_head=bool((runner.loaded.record.head == runner.loaded.record.embedding).all()),
        kv_bytes_per_token=runner.kv.position_bytes,
        settings=settings,
        threads=runner.team.size,
        prompt=see_tokens(tokenizer, prompt_ids),
        cut=cut_characters([tokenizer.token_bytes(each) for each in prompt_ids]),
        written=written,
        forward=found.forward,
        new_tokens=found.new_tokens,
        text="".join(each.text for each in found.new_tokens),
        finish_reason=found.finish_reason,
        times=None if measure is None else _measure(runner, found.batches, measure),
    )


class _Generated(NamedTuple):
    """What a generation shows."""

    forward: SeenForward  # of the prompt, or of its last chunk
    new_tokens: tuple[NewToken, ...]
    batches: list[Batch]  # of the steps: the prompt's last chunk, then a token each
    finish_reason: FinishReason


def _generate(
    runner: ModelRunner, tokenizer: Tokenizer, prompt_ids: Sequence[int], settings: WalkSettings
) -> _Generated:
    """Compute and choose token after token, in the open but for what comes before the prompt's last chunk."""
    scratch = SamplerScratch.allocate(runner.vocab_size)
    limit = min(runner.context, len(prompt_ids) + settings.max_tokens)
    each_params = settings.params()
    detokenizer = tokenizer.detokenizer(prompt_ids=prompt_ids)
    ids = list(prompt_ids)
    prepare_attention_rows(runner)
    start = _compute_all_but_last_chunk(runner, ids)
    forward: SeenForward | None = None
    new_tokens: list[NewToken] = []
    batches: list[Batch] = []
    while True:
        tokens = see_tokens(tokenizer, ids)
        step = run_open(runner, tokens, start)
        batches.append(step.batch)
        position = len(ids)
        history = History(np.array(prompt_ids, np.int32), np.array(ids[len(prompt_ids) :], np.int32), NO_IDS)
        key = NoiseKey(settings.seed, 0, position)
        choices = see_choices(step.logits, each_params, key, scratch, history, tokenizer)
        winner = choices[0].winner
        forward = forward or see_forward(runner, tokenizer, tokens, step, winner.id)
        looks = average_of_layers(see_looks(runner, tokens, step), tokens) if new_tokens else forward.attention
        ended: FinishReason | None = None
        if winner.id in tokenizer.eos_ids:
            ended = "stop"
        elif position + 1 == limit:
            ended = "length"
        text = "" if ended == "stop" else detokenizer.push(winner.id)
        if ended is not None:
            text += detokenizer.flush()
        computed = 1 if new_tokens else position
        new_tokens.append(NewToken(position, winner.id, winner.piece, text, computed, position, looks, choices))
        if ended is not None:
            break
        ids.append(winner.id)
        start = position
    return _Generated(forward, tuple(new_tokens), batches, ended)


def _compute_all_but_last_chunk(runner: ModelRunner, ids: Sequence[int]) -> int:
    """Closed, in chunks of whole steps; returns where the last chunk begins."""
    last = (len(ids) - 1) // runner.max_step_tokens * runner.max_step_tokens
    for start in range(0, last, runner.max_step_tokens):
        chunk = ids[start : start + runner.max_step_tokens]
        runner.step(make_batch([Piece(start, chunk, list(range(runner.kv.num_pages)))]))
    return last


def _measure(runner: ModelRunner, batches: Sequence[Batch], wanted: TimesWanted) -> WalkTimes:
    """The ledgers of the first two passes. The sequence's keys and values are in the cache and are written again."""

    def ledger(batch: Batch, repeats: int) -> Ledger:
        return measure_ledger(runner, batch, wanted.weight_bytes, wanted.limits, repeats)

    prefill, *others = batches[:2]
    return WalkTimes(
        wanted.limits, ledger(prefill, LEAST_REPEATS), ledger(others[0], DECODE_REPEATS) if others else None
    )
