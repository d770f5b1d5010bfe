"""A model of a few hundred kilobytes that says what it is told to: its logits are a script's, all else is the engine's.

In: a chat template, control tokens, then texts. Out: an ``LLM`` whose answers are these, a token a byte.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cutaway import LLM
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from support.tiny_llama import TinySizes, tiny_metadata, tiny_tensors, write_gguf

END = "<|im_end|>"
CONTROL = ("<|im_start|>", END, "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<|hidden|>")
USER_DEFINED = ("<tool_call>", "</tool_call>", "<think>", "</think>")
NORMAL_TYPE, CONTROL_TYPE, USER_DEFINED_TYPE = 1, 3, 4

WRITES = {
    "hermes": '<tool_call>{"name": "\' + c.function.name + \'", "arguments": \' + c.function.arguments | tojson + '
    "'}</tool_call>",
    "json": '{"name": "\' + c.function.name + \'", "parameters": \' + c.function.arguments | tojson + \'}',
    "mistral": '[TOOL_CALLS][{"name": "\' + c.function.name + \'", "id": "\' + c.id + \'", "arguments": \' + '
    "c.function.arguments | tojson + '}]",
    "mistral_named": "[TOOL_CALLS]' + c.function.name + '[ARGS]' + c.function.arguments | tojson + '",
    "tool_code": "```tool_code\n' + c.function.name + '(' + c.function.arguments | tojson + ')\n```",
    "unknown": "<call>' + c.function.name + c.function.arguments | tojson + '</call>",
}
"""How a template writes a call of each format, within quotes of Jinja."""


def template(form: str | None, *, reasons: bool = False, opens: bool = False) -> str:
    """A template that shows tools and calls, if there is a form of calls. opens: the prompt begins the thoughts."""
    shows_tools = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" if form else ""
    calls = f"{{% for c in m.tool_calls or [] %}}{{{{ '{WRITES[form]}' }}}}{{% endfor %}}" if form else ""
    thoughts = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}" if reasons else ""
    turn = "{{ '<|im_start|>' + m.role + '\n' }}" + thoughts + "{{ m.content }}" + calls + "{{ '<|im_end|>\n' }}"
    opening = "{{ '<think>\n' }}" if opens else ""
    begin = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}" + opening + "{% endif %}"
    return shows_tools + "{% for m in messages %}" + turn + "{% endfor %}" + begin


class ScriptedModel:
    """Greedy or not, the answer to the next request is what ``say`` was given last, and then the end of the turn."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self._script: list[int] = []
        self._first: int | None = None  # position whose logits are of the script's first token
        setattr(llm.runner, "step", self._step)  # noqa: B010 (a method, replaced)

    def say(self, text: str, *, ends: bool = True, special: bool = True) -> list[int]:
        """What comes next; ends: with the end of the turn; special: control tokens are meant by their spelling. Its
        ids.
        """
        encode = self.llm.tokenizer.encode
        self._script = encode(text, parse_special=special, add_bos=False)
        self._script += encode(END, parse_special=True, add_bos=False) if ends else []
        self._first = None
        return list(self._script)

    def _step(self, batch: Batch) -> Floats:
        logits = np.zeros((len(batch.output_rows), self.llm.tokenizer.vocab_size), np.float32)
        for row, token in enumerate(batch.output_rows):
            position = int(batch.positions[token])
            if self._first is None:
                self._first = position
            place = min(position - self._first, len(self._script) - 1)
            logits[row, self._script[place]] = 100
        return logits


@contextmanager
def scripted_model(folder: Path, source: str, **options: Any) -> Iterator[ScriptedModel]:
    """A model with this chat template. options: of ``LLM``."""
    pieces = [*BYTE_TO_CHARACTER, "ab", *CONTROL, *USER_DEFINED]
    types = [NORMAL_TYPE] * 257 + [CONTROL_TYPE] * len(CONTROL) + [USER_DEFINED_TYPE] * len(USER_DEFINED)
    sizes = TinySizes(num_layers=1, width=32, num_heads=1, num_kv_heads=1, head_dim=32, ffn_width=32)
    sizes = sizes._replace(vocab_size=len(pieces), context_length=4096)
    metadata = {
        **tiny_metadata(sizes),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": pieces.index(END),
        "tokenizer.chat_template": source,
    }
    path = write_gguf(folder / "scripted.gguf", metadata, tiny_tensors(sizes))
    with LLM(path, **{"threads": 1, "max_model_len": 4096, **options}) as llm:
        yield ScriptedModel(llm)
