"""A question to a loaded model, as commands put it.

In: a text, and a system message or none; or a text to be completed as it is. Out: the answer's stream; the answer on
standard output as it comes.
"""

from typing import TYPE_CHECKING

from cutaway.cli.console import CompileProgress, say

if TYPE_CHECKING:
    from cutaway.engine.llm import LLM
    from cutaway.engine.stream import Stream
    from cutaway.engine.watched import Tapping
    from cutaway.sampling.params import SamplingParams


def messages_of(text: str, system: str | None) -> list[dict[str, str]]:
    """The conversation that has only this question."""
    instruction = [{"role": "system", "content": system}] if system else []
    return [*instruction, {"role": "user", "content": text}]


def ask(
    llm: "LLM",
    text: str,
    params: "SamplingParams",
    *,
    raw: bool,
    system: str | None,
    taps: "Tapping | None" = None,
) -> "Stream":
    """Put the question by the model's chat template; with ``raw``, have the text completed without one."""
    if raw:
        return llm.stream(text, params, taps=taps)
    return llm.stream_chat(messages_of(text, system), params, taps=taps)


def listen(stream: "Stream", compiling: CompileProgress, *, aloud: bool = True) -> None:
    """Take the answer as it comes; aloud: and print it. The first token has compiled what was left to be compiled."""
    for delta in stream:
        compiling.done()
        if aloud:
            say(delta.text)
