"""The scheduler's limits: what a step may hold, and what may wait.

In: the engine's settings. Out: a checked record.
"""

from dataclasses import dataclass

from cutaway.errors import InvalidRequestError


@dataclass(frozen=True)
class SchedulerLimits:
    """Every field is an integer of 1 at least, and a step has room for one token of each running sequence."""

    max_step_tokens: int  # the token budget: tokens of a step, pads among them
    max_sequences: int  # running at a time
    max_step_outputs: int = 1 << 30  # rows of logits of a step
    max_waiting: int = 1024  # choices of waiting requests; of bulk requests, as many besides
    max_waiting_tokens: int = 1 << 20  # of their prompts
    num_priorities: int = 8  # 0 … num_priorities - 1
    ageing: int = 256  # steps after which a waiting request is as good as a new one of the next better priority

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise InvalidRequestError(f"{name} is {value}; it must be 1 at least.", name)
        if self.max_sequences > self.max_step_tokens:
            raise InvalidRequestError(
                f"max_sequences is {self.max_sequences}, and a step has {self.max_step_tokens} tokens; each running "
                "sequence needs one of them. Lower max_sequences or raise max_step_tokens.",
                "max_sequences",
            )
        if self.max_sequences > self.max_step_outputs:
            raise InvalidRequestError(
                f"max_sequences is {self.max_sequences}, and a step has {self.max_step_outputs} rows of logits; each "
                "running sequence needs one of them. Lower max_sequences or raise max_step_outputs.",
                "max_sequences",
            )

    def longest_wait(self, longest: int, priority: int, num_choices: int = 1, *, keeps_kv: bool = True) -> int:
        """Steps within which every admitted request has ended, if none has more than ``longest`` tokens.

        longest: tokens of a prompt and its answer. num_choices: the most that a request has. After ``priority ×
        ageing`` steps no newcomer goes before the request. What is before its last choice then are, of bulk requests
        and of others, at most ``max_waiting`` choices that wait and those of one request more (an empty queue takes any
        request); its own; and those that run: at most ``max_sequences``, and as many again where a request was let in
        to be the first. The first of them all is never preempted and advances by a token in every step, or in every
        second one where prompts and single tokens take turns; a static batch, whose prompt and answer may come from two
        requests, lasts as many steps at most. Before the first of them, a static batch that runs may have to end. Steps
        are those of one kind: where there are open requests, theirs and the others' take turns.
        keeps_kv: else (kv is "none") each token computes all before it anew, which takes up to ``longest`` such steps.
        """
        most = max(num_choices, self.max_sequences)
        ahead = 2 * (self.max_waiting + most) + most + 2 * self.max_sequences + 1
        return priority * self.ageing + 2 * longest * (1 if keeps_kv else longest) * ahead
