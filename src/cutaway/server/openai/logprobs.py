"""Logprobs in OpenAI's two shapes: a list of objects for chats, parallel lists for completions.

In: tokens, and the engine's entries for each: the likeliest in order, and the token's own. Out: JSON values, finite.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cutaway.engine.outputs import Logprob
from cutaway.tokenizer.detokenize import StreamingDetokenizer
from cutaway.tokenizer.tokenizer import Tokenizer

FLOOR: Final = -9999.0
"""In place of minus infinity, which JSON doesn't have."""

Entries = Mapping[int, Logprob]


def chat_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[int], entries: Sequence[Entries], most: int
) -> list[dict[str, Any]]:
    """For each token an object with its logprob, and with those of the ``most`` likeliest at its place."""

    def one(token: int, entry: Logprob) -> dict[str, Any]:
        text = tokenizer.token_bytes(token)
        return {"token": entry.decoded_token, "logprob": max(entry.logprob, FLOOR), "bytes": list(text)}

    return [
        {**one(token, at[token]), "top_logprobs": [one(each, entry) for each, entry in list(at.items())[:most]]}
        for token, at in zip(tokens, entries, strict=True)
    ]


class CompletionLogprobs:
    """The four parallel lists, as they grow with the text of one choice."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], *, skip_special: bool) -> None:
        self._tokenizer, self._prompt_ids = tokenizer, prompt_ids
        self._of_prompt = tokenizer.detokenizer(skip_special=skip_special)
        self._of_answer = tokenizer.detokenizer(prompt_ids=prompt_ids, skip_special=skip_special)
        self._offset = 0

    def prompt(self, entries: Sequence[Entries | None], text: str) -> dict[str, Any]:
        """The lists for the prompt, which is echoed as this text: the answer's offsets go on behind it.

        The first entry is None: nothing precedes the first token.
        """
        found = self._lists(self._prompt_ids, entries, self._of_prompt)
        self._offset = len(text)
        return found

    def answer(self, tokens: Sequence[int], entries: Sequence[Entries]) -> dict[str, Any]:
        """The lists for the answer's next tokens."""
        return self._lists(tokens, entries, self._of_answer)

    def _lists(
        self, tokens: Sequence[int], entries: Sequence[Entries | None], detokenizer: StreamingDetokenizer
    ) -> dict[str, Any]:
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(detokenizer.push(token))
        pairs = zip(tokens, entries, strict=True)
        values = [None if at is None else max(at[token].logprob, FLOOR) for token, at in pairs]
        return {
            "tokens": [self._name(token) for token in tokens],
            "token_logprobs": values,
            "top_logprobs": [None if at is None else self._top(at) for at in entries],
            "text_offset": offsets,
        }

    def _top(self, at: Entries) -> dict[str, float]:
        """By text; where two tokens have the same, the likelier."""
        found: dict[str, float] = {}
        for token, entry in at.items():
            found.setdefault(self._name(token), max(entry.logprob, FLOOR))
        return found

    def _name(self, token: int) -> str:
        """A token's text; bytes that are no text alone are spelt, so that two of them are not the same."""
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
