"""The engine's settings: how many run together, how they are batched, how much memory their keys and values have.

In: what the user asks, a model's context. Out: a checked record, and from it the scheduler with its blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cutaway.engine.runner import DEFAULT_STEP
from cutaway.errors import InvalidRequestError
from cutaway.memory.block_manager import BlockManager
from cutaway.memory.kv_setting import KVSetting
from cutaway.sampling.params_checks import is_integer, shown
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.static import StaticPolicy

BATCHINGS: Final = ("continuous", "static", "bucketed")
DEFAULT_SEQUENCES: Final = 32
DEFAULT_KV_TOKENS: Final = 8192  # of the pool, where neither the context asks for more nor the sequences for less
DEFAULT_WAITING: Final = 1024
DEFAULT_WAITING_TOKENS: Final = 1 << 20
MOST_SEQUENCES: Final = 4096
MOST_STEP: Final = 1 << 16
MOST: Final = 1 << 40


@dataclass(frozen=True)
class EngineSettings:
    """What is in effect. Make it by ``engine_settings``."""

    context: int  # positions of a sequence at most
    kv: KVSetting
    max_num_seqs: int  # that run together
    max_num_batched_tokens: int  # of a step
    batching: str  # one of BATCHINGS
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    kv_tokens: int  # positions of the KV pool, whole pages
    max_waiting: int  # choices of requests in the waiting queue
    max_waiting_tokens: int  # of their prompts

    @property
    def page_length(self) -> int:
        """Positions of a page."""
        return self.kv.page_length(self.context)

    @property
    def num_blocks(self) -> int:
        """Pages that sequences can have."""
        return self.kv_tokens // self.page_length

    @property
    def scratch_page(self) -> int | None:
        """The page behind these for the pads of a static batch."""
        return None if self.batching == "continuous" else self.num_blocks

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return self.num_blocks + (self.scratch_page is not None)

    def scheduler(self, max_step_outputs: int) -> Scheduler:
        """A scheduler, with all blocks free; max_step_outputs: rows of logits of a step."""
        limits = SchedulerLimits(
            max_step_tokens=self.max_num_batched_tokens,
            max_sequences=self.max_num_seqs,
            max_step_outputs=max_step_outputs,
            max_waiting=self.max_waiting,
            max_waiting_tokens=self.max_waiting_tokens,
        )
        policy: Policy = StaticPolicy(bucketed=self.batching == "bucketed")
        if self.batching == "continuous":
            policy = ContinuousPolicy(chunked_prefill=self.enable_chunked_prefill)
        blocks = BlockManager(self.num_blocks, self.page_length, prefix_cache=self.enable_prefix_caching)
        return Scheduler(blocks, limits, policy, keeps_kv=self.kv.keeps)


def check_options(options: Mapping[str, object]) -> dict[str, Any]:
    """The options, their integers as Python's: sums of NumPy's could overflow. Refuses values of the wrong type or
    outside their limits, of those that are given, before a model is looked at.
    """
    limits = {
        "max_num_seqs": MOST_SEQUENCES,
        "max_num_batched_tokens": MOST_STEP,
        "kv_tokens": MOST,
        "max_waiting": MOST,
        "max_waiting_tokens": MOST,
    }
    for name, most in limits.items():
        value = options.get(name)
        if value is not None and not (is_integer(value) and 1 <= value <= most):  # type: ignore[operator]
            raise InvalidRequestError(
                f"{name} is {shown(value)}; it must be an integer from 1 to {most}. Leave it out for the default.", name
            )
    batching = options.get("batching", "continuous")
    if not isinstance(batching, str) or batching not in BATCHINGS:
        raise InvalidRequestError(
            f"batching is {shown(batching)}; it must be one of {', '.join(BATCHINGS)}. Leave it out for continuous.",
            "batching",
        )
    for name in ("enable_chunked_prefill", "enable_prefix_caching"):
        if not isinstance(options.get(name), bool | None):
            raise InvalidRequestError(f"{name} is {shown(options[name])}; it must be True or False.", name)
    plain: dict[str, Any] = dict(options)
    return {name: int(value) if name in limits and value is not None else value for name, value in plain.items()}


def engine_settings(
    context: int,
    kv: KVSetting,
    *,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    batching: str = "continuous",
    enable_chunked_prefill: bool | None = None,
    enable_prefix_caching: bool | None = None,
    kv_tokens: int | None = None,
    max_waiting: int | None = None,
    max_waiting_tokens: int | None = None,
) -> EngineSettings:
    """The settings in effect; the values have passed ``check_options``.

    kv_tokens: at least one context. Default, as many as all sequences can have, up to 8,192, and one context at least.
    """
    continuous = batching == "continuous"
    shares = continuous and kv.keeps
    if enable_prefix_caching and not shares:
        what = f"batching is {batching!r}" if not continuous else f"kv is {kv.name!r}"
        raise InvalidRequestError(
            f"enable_prefix_caching is True, and {what}: nothing is there to be shared. Leave one of them out.",
            "enable_prefix_caching",
        )
    if enable_chunked_prefill is not None and not continuous:
        raise InvalidRequestError(
            f"enable_chunked_prefill is {enable_chunked_prefill}, and batching is {batching!r}, whose prompts are cut "
            "to the step in any case. Leave it out.",
            "enable_chunked_prefill",
        )
    if not kv.keeps and not continuous:
        raise InvalidRequestError(
            f"kv is {kv.name!r}, and batching is {batching!r}, which reserves keys and values. Leave one out.", "kv"
        )
    sequences = max_num_seqs or min(DEFAULT_SEQUENCES, max_num_batched_tokens or DEFAULT_STEP)
    step = max_num_batched_tokens or max(DEFAULT_STEP, sequences)
    if sequences > step:
        raise InvalidRequestError(
            f"max_num_seqs is {sequences} and max_num_batched_tokens {step}; each running sequence needs a token of "
            "the step. Lower the first or raise the second.",
            "max_num_seqs",
        )
    page = kv.page_length(context)
    least = -(-context // page) * page
    tokens = min(max(least, DEFAULT_KV_TOKENS), sequences * least) if kv_tokens is None else kv_tokens
    if kv_tokens is not None and kv_tokens < least:
        raise InvalidRequestError(
            f"kv_tokens is {kv_tokens}; one sequence may have {context} positions, so it must be {least} at least. "
            "Raise it, or lower max_model_len.",
            "kv_tokens",
        )
    return EngineSettings(
        context=context,
        kv=kv,
        max_num_seqs=sequences,
        max_num_batched_tokens=step,
        batching=batching,
        enable_chunked_prefill=continuous and enable_chunked_prefill is not False,
        enable_prefix_caching=shares and enable_prefix_caching is not False,
        kv_tokens=tokens // page * page,
        max_waiting=max_waiting or DEFAULT_WAITING,
        max_waiting_tokens=max_waiting_tokens or DEFAULT_WAITING_TOKENS,
    )
