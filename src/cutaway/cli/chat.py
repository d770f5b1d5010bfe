"""``cutaway chat``: a conversation in the terminal.

In: lines, of which those that begin with a slash are commands (``cli.chat_commands``). Out: answers on standard output
as they are generated, everything else on standard error. Where standard input is a pipe, each line is a turn.
"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from cutaway.cli.chat_commands import ChatState, is_command, run_command
from cutaway.cli.console import error_console, first_use, print_message, say
from cutaway.cli.interrupts import Interrupts
from cutaway.cli.line_editor import read_lines
from cutaway.cli.missing_template import missing_template_told
from cutaway.cli.models import ModelName
from cutaway.cli.options import (
    KV,
    MAX_TOKENS,
    AdvisedMinP,
    AdvisedRepetitionPenalty,
    AdvisedTemperature,
    AdvisedTopK,
    AdvisedTopP,
    ChatTemplate,
    Context,
    FrequencyPenalty,
    KVDtype,
    MaxTokens,
    PresencePenalty,
    Seed,
    System,
    Threads,
    with_advice,
)
from cutaway.cli.recording import RecordFile, RecordKey, RecordLevel, record_of
from cutaway.errors import CapacityError, CutawayError, InvalidRequestError

WELCOME = "Ask something. /help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the chat."


def chat(
    model: ModelName,
    system: System = None,
    chat_template: ChatTemplate = None,
    temperature: AdvisedTemperature = None,
    top_k: AdvisedTopK = None,
    top_p: AdvisedTopP = None,
    min_p: AdvisedMinP = None,
    repetition_penalty: AdvisedRepetitionPenalty = None,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    seed: Seed = None,
    max_tokens: MaxTokens = MAX_TOKENS,
    context: Context = None,
    threads: Threads = None,
    kv: KV = "paged",
    kv_dtype: KVDtype = "f16",
    record: RecordFile = None,
    record_level: RecordLevel = None,
    record_key: RecordKey = None,
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Keep the lines typed on a terminal, in the cache folder.")
    ] = True,
) -> None:
    """Talk with a model over several turns."""
    if sys.stdin is None:
        raise InvalidRequestError("standard input is closed; a chat reads from it. Open it, or pipe text in.", "prompt")
    from cutaway.sampling.params import SamplingParams

    given = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "seed": seed,
        "max_tokens": max_tokens,
    }
    SamplingParams(**with_advice(given, {}))  # what is wrong with them is told before anything is loaded
    from cutaway.engine.conversation import Conversation
    from cutaway.engine.llm import LLM

    console = error_console()
    completing = "complete texts with `cutaway run --raw`"
    with first_use(console) as (fetching, compiling), missing_template_told(completing):
        llm = LLM(
            model,
            threads=threads,
            max_model_len=context,
            kv=kv,
            kv_dtype=kv_dtype,
            chat_template=chat_template,
            needs_chat=True,
            record=record_of(record, record_level, record_key, fetching),
            progress=fetching,
        )
        compiling.done()
    with llm:
        params = SamplingParams(**with_advice(given, llm.default_params))
        state = ChatState(llm, Conversation(llm), params)
        state.conversation.set_system(system)
        _talk(state, console, history)


def _talk(state: ChatState, console: Any, history: bool) -> None:
    """Read, answer, until the input ends. On a terminal an error or Ctrl-C is told, and the chat goes on."""
    interactive, interrupts = sys.stdin.isatty(), Interrupts()
    if interactive:
        console.print(WELCOME, style="dim")
    with interrupts.installed() if interactive else nullcontext():
        for text in _turns(interactive, history, interrupts):
            try:
                with interrupts.heard():
                    goes_on = _turn(state, text, console)
                if not goes_on:
                    return
            except CutawayError as error:
                if not interactive:
                    raise
                print_message("error", str(error))
            except KeyboardInterrupt:  # before the first step, after the last, or in a command
                if not interactive:
                    raise
                print_message("warning", "interrupted.")


def _turns(interactive: bool, history: bool, interrupts: Interrupts) -> Iterator[str]:
    for text in read_lines(interactive, history, interrupts):
        if text.strip():
            yield text


def _turn(state: ChatState, text: str, console: Any) -> bool:
    """Carry a command out, or answer. Returns whether the chat goes on."""
    if not is_command(text):
        _answer(state, text, console)
        return True
    message = run_command(state, text)
    if message is None:
        return False
    console.print(message, style="dim", soft_wrap=True, markup=False)
    return True


def _answer(state: ChatState, text: str, console: Any) -> None:
    """One turn. Ctrl-C ends the answer, which stays in the history as far as it came."""
    try:
        stream = state.conversation.ask(text, state.params)
    except CapacityError as error:
        raise CapacityError(f"{error} In a chat: /undo, /clear, or start it with a larger --context.") from error
    try:
        for delta in stream:
            say(delta.text)
    except KeyboardInterrupt:
        stream.close()
    finally:
        say("\n")
    if not stream.statistics().generated_tokens:
        print_message("warning", "stopped before the first token; the question is not in the history.")
        return
    state.remember(text, stream)
    console.print(state.summary(), style="dim", soft_wrap=True)
