"""Admission: what is refused at once, with the numbers, because it can never run or may not wait.

In: a request, the limits, the size of the pool, the queue. Out: nothing, or an error that says what would help.
"""

from math import isfinite

from cutaway.errors import CapacityError, InvalidRequestError, QueueFullError, counted, shown
from cutaway.memory.block_manager import BlockManager
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.request import Request
from cutaway.scheduler.retry import RetryEstimate
from cutaway.scheduler.waiting_queue import Load


def check_request(request: Request, limits: SchedulerLimits, now: float) -> None:
    """Refuse values that mean nothing."""
    rules = {
        "ids": (len(request.ids), "tokens", 1, None),
        "max_new_tokens": (request.max_new_tokens, "tokens", 1, None),
        "num_choices": (request.num_choices, "choices", 1, None),
        "priority": (request.priority, "", 0, limits.num_priorities - 1),
    }
    for name, (value, unit, least, most) in rules.items():
        if value < least or (most is not None and value > most):
            upto = "at least" if most is None else f"to {most}"
            raise InvalidRequestError(
                f"{name} is {shown(value)} {unit}".rstrip() + f"; it must be {least} {upto}.", name
            )
    if request.deadline is not None and not (isfinite(request.deadline) and request.deadline > now):
        raise InvalidRequestError(
            f"the deadline is {request.deadline}, and the clock is at {now}; it must lie ahead. Leave it out for none.",
            "deadline",
        )


def check_fits(request: Request, blocks: BlockManager) -> None:
    """Refuse what could not run if it had the whole pool."""
    needed, total = blocks.blocks_for(request.longest), blocks.num_blocks
    if needed > total:
        raise CapacityError(
            f"{counted(len(request.ids), 'prompt token')} and {request.max_new_tokens:,} new need "
            f"{counted(needed, 'block')} of {counted(blocks.block_length, 'token')}, and the KV pool has {total:,}, "
            f"for {counted(total * blocks.block_length, 'token')}. "
            "Ask for fewer tokens, or give the pool more memory."
        )


def missing_places(load: Load, limits: SchedulerLimits, num_choices: int, length: int) -> tuple[int, int]:
    """What the queue lacks for so many choices of a prompt of ``length`` tokens: choices, and tokens of them all. An
    empty queue takes any request. load: what waits of the same kind; bulk requests take no other's place.
    """
    if load.num_choices == 0:
        return 0, 0
    choices = load.num_choices + num_choices - limits.max_waiting
    tokens = load.num_tokens + num_choices * length - limits.max_waiting_tokens
    return max(choices, 0), max(tokens, 0)


def check_queue(request: Request, limits: SchedulerLimits, waiting: Load, estimate: RetryEstimate) -> None:
    """Refuse what the waiting queue has no place for now; waiting: the load of the request's kind."""
    choices, tokens = missing_places(waiting, limits, request.num_choices, len(request.ids))
    if not choices and not tokens:
        return
    # As many choices as have the tokens that are too many, if they are of the mean length.
    by_tokens = min(-(-tokens * waiting.num_choices // waiting.num_tokens), waiting.num_choices)
    seconds = estimate.seconds(max(choices, by_tokens))
    when = "Try again later." if seconds is None else f"Try again in about {seconds:.1f} s."
    raise QueueFullError(
        f"{counted(waiting.num_choices, 'choice')} with {counted(waiting.num_tokens, 'token')} "
        f"{'waits' if waiting.num_choices == 1 else 'wait'} already, of at most {limits.max_waiting:,} and "
        f"{limits.max_waiting_tokens:,}; there is no place for {request.num_choices:,} more with "
        f"{counted(request.num_choices * len(request.ids), 'token')}. {when}",
        seconds,
    )
