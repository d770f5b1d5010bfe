"""The line behind an answer: counts, rates, why it ended, and what would give the same answer again.

In: an answer's output, the sampling parameters in effect. Out: one line, for standard error.
"""

from typing import TYPE_CHECKING, Any

from cutaway.cli.console import generated
from cutaway.cli.options import effective

if TYPE_CHECKING:
    from cutaway.engine.outputs import RequestOutput
    from cutaway.sampling.params import SamplingParams


def closing_line(output: "RequestOutput", params: "SamplingParams", *, interrupted: bool = False) -> str:
    """The line; interrupted: the answer was ended by Ctrl-C."""
    numbers = output.statistics
    ending = (
        "interrupted"
        if interrupted
        else {"stop": "end of answer", "length": "length limit", None: "no token"}[output.outputs[0].finish_reason]
    )
    return (
        f"{numbers.prompt_tokens} prompt tokens in {numbers.prefill_seconds:.2f} s, {numbers.prefill_rate:.0f} tok/s · "
        f"{generated(numbers)} · {ending} · {_sampling(params)} · seed {output.seed}"
    )


def _sampling(params: Any) -> str:
    """What decided on the distribution that tokens were drawn from, by the names of the options."""
    names = ("top_k", "top_p", "min_p") if params.temperature else ()
    in_effect = effective(params)
    further = [
        f"{name.replace('_', '-')} {in_effect[name]:g}" for name in (*names, "repetition_penalty") if name in in_effect
    ]
    return ", ".join([f"temperature {params.temperature:g}", *further])
