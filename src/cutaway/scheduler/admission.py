"""Admission: what is refused at once, with the numbers, because it can never run or may not wait.

In: a request, the limits, the size of the pool, the queue. Out: nothing, or an error that says what would help.
"""

from math import isfinite

from cutaway.errors import CapacityError, InvalidRequestError, QueueFullError, shown
from cutaway.memory.block_manager import BlockManager
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.request import Request
from cutaway.scheduler.retry import RetryEstimate
from cutaway.scheduler.waiting_queue import WaitingQueue


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
            f"{len(request.ids)} prompt tokens and {request.max_new_tokens} new ones need {needed} blocks of "
            f"{blocks.block_length} tokens, and the KV pool has {total}, for {total * blocks.block_length} tokens. "
            "Ask for fewer tokens, or give the pool more memory."
        )


def check_queue(request: Request, limits: SchedulerLimits, waiting: WaitingQueue, estimate: RetryEstimate) -> None:
    """Refuse what the waiting queue has no place for now. An empty queue takes any request."""
    if waiting.num_choices == 0:
        return
    choices = waiting.num_choices + request.num_choices - limits.max_waiting
    tokens = waiting.num_tokens + request.num_choices * len(request.ids) - limits.max_waiting_tokens
    if choices <= 0 and tokens <= 0:
        return
    # As many choices as have the tokens that are too many, if they are of the mean length.
    by_tokens = min(-(-tokens * waiting.num_choices // waiting.num_tokens), waiting.num_choices)
    seconds = estimate.seconds(max(choices, by_tokens))
    when = "Try again later." if seconds is None else f"Try again in about {seconds:.1f} s."
    raise QueueFullError(
        f"{waiting.num_choices} choices with {waiting.num_tokens} tokens wait already, of at most "
        f"{limits.max_waiting} and {limits.max_waiting_tokens}; there is no place for {request.num_choices} more with "
        f"{request.num_choices * len(request.ids)} tokens. {when}",
        seconds,
    )
