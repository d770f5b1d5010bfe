"""The commands within a chat: ``/system``, ``/set``, ``/save`` and the rest, each a small function.

In: the chat's state and a line. Out: what to tell the user; None to end the chat.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cutaway.cli.chat_file import read_chat, write_chat
from cutaway.cli.console import generated
from cutaway.cli.options import effective
from cutaway.errors import InvalidRequestError

if TYPE_CHECKING:
    from cutaway.engine.conversation import Conversation, TurnCost
    from cutaway.engine.llm import LLM
    from cutaway.engine.outputs import RequestOutput
    from cutaway.engine.stream import Stream
    from cutaway.sampling.params import SamplingParams

FIXED: Final[Mapping[str, Any]] = MappingProxyType(
    {"n": 1, "logprobs": None, "prompt_logprobs": None, "detokenize": True}
)
"""Parameters that a chat holds at these values: a turn is one answer, shown as text and as nothing else."""


@dataclass
class ChatState:
    """A chat as its commands see it."""

    llm: "LLM"
    conversation: "Conversation"
    params: "SamplingParams"
    last: "tuple[RequestOutput, TurnCost] | None" = field(default=None)

    def remember(self, text: str, stream: "Stream") -> None:
        """Take a turn into the history."""
        self.last = (stream.output(), self.conversation.answered(text, stream))

    def summary(self) -> str:
        """One line on the last turn."""
        assert self.last is not None
        output, cost = self.last
        statistics, completion = output.statistics, output.outputs[0]
        used, context = len(output.prompt_token_ids) + len(completion.token_ids), self.llm.runner.context
        computed = f"{cost.new_tokens} new" + (
            f" + {cost.recomputed_tokens} recomputed" if cost.recomputed_tokens else ""
        )
        ending = {"stop": "end of answer", "length": "length limit", None: "stopped"}[completion.finish_reason]
        if completion.finish_reason == "length" and used >= context:
            ending = "the context is full: /undo, /clear, or start with a larger --context"
        return (
            f"{cost.prompt_tokens} prompt tokens: {cost.reused_tokens} reused, {computed} · "
            f"{generated(statistics)} · "
            f"{used} of {context} positions · {ending} · seed {output.seed}"
        )


def is_command(text: str) -> bool:
    """Whether a line is for the chat itself. To say something with a slash in front, put a space before it."""
    return text.startswith("/")


def run_command(state: ChatState, line: str) -> str | None:
    """Carry a command out. Raises InvalidRequestError for an unknown one or a wrong argument."""
    name, _, argument = line.partition(" ")
    if name in ("/bye", "/exit", "/quit"):
        return None
    if name not in COMMANDS:
        raise InvalidRequestError(f"there is no command {name}; there are {', '.join(COMMANDS)}, /bye.", "command")
    return COMMANDS[name][1](state, argument.strip())


def _help(state: ChatState, argument: str) -> str:
    lines = [f"{name:8} {text}" for name, (text, _) in COMMANDS.items()]
    return "\n".join(
        [*lines, "/bye     end the chat (also /exit, /quit, Ctrl-D)", '"""      begin and end a text of several lines']
    )


def _system(state: ChatState, argument: str) -> str:
    if not argument:
        return f"system: {state.conversation.system}" if state.conversation.system else "there is no system message."
    state.conversation.set_system(None if argument in ('""', "none") else argument)
    return "set." if not state.conversation.messages[1:] else "set. The history is computed again at the next turn."


def _set(state: ChatState, argument: str) -> str:
    name, value = re.fullmatch(r"([^\s=]*)\s*=?\s*(.*)", argument, re.DOTALL).groups()  # type: ignore[union-attr]
    known = {each.name for each in fields(state.params)} - set(FIXED)
    if not name:
        return "\n".join(f"{name} {json.dumps(value)}" for name, value in effective(state.params).items())
    if name not in known | set(FIXED):
        raise InvalidRequestError(
            f"there is no parameter {name!r}; there are {', '.join(sorted(known))}. Example: /set temperature 0.2", name
        )
    if not value:
        return f"{name} {json.dumps(getattr(state.params, name), default=str)}"
    state.params = for_a_chat(replace(state.params, **{name: _value(value.strip())}))
    return f"{name} {json.dumps(getattr(state.params, name), default=str)}"


def for_a_chat(params: "SamplingParams") -> "SamplingParams":
    """The parameters. Raises InvalidRequestError for what a chat would not show."""
    for name, value in FIXED.items():
        given = getattr(params, name)
        if given != value:
            raise InvalidRequestError(
                f"{name} is {given!r}; in a chat it must be {value!r}, since a turn is one answer, shown as text. Use "
                "LLM.chat from Python for more.",
                name,
            )
    return params


def _value(text: str) -> Any:
    """A JSON value, None by its Python name, or a plain word."""
    if text in ("None", "none"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _undo(state: ChatState, argument: str) -> str:
    if not state.conversation.undo():
        raise InvalidRequestError("there is nothing to undo; ask something first.", "command")
    return "the last question and its answer are taken back."


def _clear(state: ChatState, argument: str) -> str:
    system = state.conversation.system
    state.conversation.messages = []
    state.conversation.set_system(system)
    return "the history is empty" + (", the system message stays." if system else ".")


def _stats(state: ChatState, argument: str) -> str:
    messages = state.conversation.messages
    lines = [f"{len(messages)} messages · model {state.llm.model.name}"]
    if state.last is not None:
        statistics = state.last[0].statistics
        lines += [
            state.summary(),
            f"prefill {statistics.prefill_seconds:.3f} s, decode {statistics.decode_seconds:.3f} s",
            f"KV cache: {statistics.kv_reserved_bytes:,} bytes reserved, {statistics.kv_used_bytes:,} used",
        ]
    return "\n".join(lines)


def _save(state: ChatState, argument: str) -> str:
    path = _path(argument, "/save")
    write_chat(path, state.llm.model.name, state.conversation.messages, effective(state.params))
    return f"saved {len(state.conversation.messages)} messages to {path}"


def _load(state: ChatState, argument: str) -> str:
    path = _path(argument, "/load")
    saved = read_chat(path)
    state.conversation.messages, state.params = saved.messages, for_a_chat(saved.params)
    note = "" if saved.model == state.llm.model.name else f" (it was with {saved.model!r})"
    return f"loaded {len(saved.messages)} messages{note}"


def _path(argument: str, command: str) -> Path:
    quoted = len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "'\""
    name = argument[1:-1] if quoted else argument
    if not name:
        raise InvalidRequestError(f"{command} needs a path. Example: {command} chat.json", "file")
    try:
        if "\0" in name:
            raise RuntimeError("no path has a zero byte")
        return Path(name).expanduser()
    except RuntimeError as error:  # a user's home that there isn't
        raise InvalidRequestError(f"the path {name[:80]!r} is none ({error}). Give another one.", "file") from error


COMMANDS: Final[dict[str, tuple[str, Callable[[ChatState, str], str]]]] = {
    "/help": ("this list", _help),
    "/system": ('TEXT: set the system message; "" removes it; alone: show it', _system),
    "/set": ("NAME VALUE: set a sampling parameter; alone: show what is set", _set),
    "/undo": ("take the last question and its answer back", _undo),
    "/clear": ("begin anew; the system message stays", _clear),
    "/stats": ("tokens, times and memory of the last turn", _stats),
    "/save": ("FILE: write messages and parameters", _save),
    "/load": ("FILE: read them", _load),
}
