"""A chat of several turns with one model: its messages, and what of them is computed already.

In: what the user says. Out: a stream for each answer, whose tokens become the next turn's history; for each turn, how
many tokens of the history were reused and how many had to be computed again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cutaway.engine.llm import LLM
from cutaway.engine.stream import Stream
from cutaway.errors import InvalidRequestError
from cutaway.sampling.params import SamplingParams
from cutaway.tokenizer.legal_text import check_legal

ROLES: Final = ("system", "user", "assistant")


@dataclass(frozen=True)
class TurnCost:
    """The prompt of one turn, in tokens: reused + recomputed + new."""

    prompt_tokens: int
    reused_tokens: int  # their keys and values were still there
    recomputed_tokens: int  # of the history, computed in an earlier turn and again in this one

    @property
    def new_tokens(self) -> int:
        """Computed for the first time."""
        return self.prompt_tokens - self.reused_tokens - self.recomputed_tokens


class Conversation:
    """Messages, turn by turn. A turn that fails or is refused leaves them as they were.

    The history is the text of the messages, rendered anew each turn. Its ids can differ from those that were computed:
    a template may drop or change what was said before, and the sampler may spell a word in other pieces than the
    tokenizer does. From the first difference on, the history is computed again.
    """

    def __init__(self, llm: LLM, messages: Sequence[Mapping[str, str]] = ()) -> None:
        """messages: the history to go on from; checked by ``check_messages``."""
        self.messages = check_messages(messages)
        self._llm = llm
        self._computed: list[int] = []  # the ids of the last turn, prompt and answer
        self._num_history_tokens = 0  # of the prompt of the last turn, before its last message

    @property
    def system(self) -> str | None:
        """The system message, if there is one."""
        return self.messages[0]["content"] if self.messages[:1] and self.messages[0]["role"] == "system" else None

    def set_system(self, text: str | None) -> None:
        """Put a system message first, or take it away. It changes the whole history, which is computed again."""
        if text is not None:
            check_legal(text, "system")
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages = [*([{"role": "system", "content": text}] if text else []), *rest]

    def undo(self) -> bool:
        """Take the last question and its answer back; False if there is none."""
        for index in reversed(range(len(self.messages))):
            if self.messages[index]["role"] == "user":
                self.messages = self.messages[:index]
                return True
        return False

    def ask(self, text: str, params: SamplingParams) -> Stream:
        """The answer's stream. When it has been iterated, as far as it should be, give it to ``answered``.

        Raises CapacityError where the history and the question don't fit the context: nothing is left out silently.
        """
        history = self.messages
        stream = self._llm.stream_chat([*history, {"role": "user", "content": text}], params)
        encode = self._llm.tokenizer.encode_chat
        self._num_history_tokens = len(encode(history, add_generation_prompt=False)) if history else 0
        return stream

    def answered(self, text: str, stream: Stream) -> TurnCost:
        """Take question and answer into the history. An answer that was cut short stays as it is."""
        output = stream.output()
        self.messages = [
            *self.messages,
            {"role": "user", "content": text},
            {"role": "assistant", "content": output.outputs[0].text},
        ]
        # The last token of an answer is drawn, and never computed.
        computed_before = min(len(self._computed) - 1, self._num_history_tokens)
        self._computed = output.prompt_token_ids + output.outputs[0].token_ids
        return TurnCost(
            prompt_tokens=len(output.prompt_token_ids),
            reused_tokens=output.num_cached_tokens,
            recomputed_tokens=max(0, computed_before - output.num_cached_tokens),
        )


def check_messages(messages: Any) -> list[dict[str, str]]:
    """The messages of a chat, copied. Raises InvalidRequestError where one has no role or no text."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidRequestError(
            f"messages is a {type(messages).__name__}; it must be a list of messages.", "messages"
        )
    checked = []
    for number, message in enumerate(messages):
        field = f"messages[{number}]"
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise InvalidRequestError(f"{field} must have a 'role' and a 'content', and nothing else.", field)
        role, content = message["role"], message["content"]
        if role not in ROLES or (role == "system") > (number == 0):
            raise InvalidRequestError(
                f"{field} has the role {role!r}; it must be one of {', '.join(ROLES)}, system only first.", field
            )
        if not isinstance(content, str):
            raise InvalidRequestError(f"{field} has a {type(content).__name__} as content; it must be a text.", field)
        check_legal(content, f"{field}.content")
        checked.append({"role": role, "content": content})
    return checked
