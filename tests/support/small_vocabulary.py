"""A tokenizer without a model file: any list of byte strings as its tokens, some of them special."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

SPECIAL = b"<|end|>"


class SmallVocabulary:
    """As much of a ``Tokenizer`` as grammars and the engine need. Ids: the tokens in order, then the special ones."""

    def __init__(self, tokens: Iterable[bytes], specials: Sequence[bytes] = (SPECIAL, b"<|tool|>")) -> None:
        self.tokens = [*tokens, *specials]
        self.vocab_size = len(self.tokens)
        self.specials = frozenset(range(self.vocab_size - len(specials), self.vocab_size))
        self.eos_ids = frozenset([self.tokens.index(specials[0])])
        self.bos_id = None

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokens[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id in self.specials

    def encode(self, text: str, *, add_bos: bool | None = None) -> list[int]:
        """One token for each byte."""
        return [self.tokens.index(bytes([byte])) for byte in text.encode()]

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        kept = [i for i in ids if not (skip_special and i in self.specials)]
        return b"".join(self.tokens[i] for i in kept).decode(errors="replace")

    def detokenizer(
        self, *, prompt_ids: Sequence[int] = (), skip_special: bool = True, shown: Collection[int] = ()
    ) -> Any:
        from cutaway.tokenizer.detokenize import StreamingDetokenizer

        def text_bytes(token_id: int) -> bytes:
            hidden = skip_special and token_id in self.specials and token_id not in shown
            return b"" if hidden else self.tokens[token_id]

        return StreamingDetokenizer(text_bytes, drop_space=False, prompt_tail=b"")


BYTES = [bytes([byte]) for byte in range(256)]
JSON_PIECES = [
    *(
        b'{"',
        b'"}',
        b'":',
        b'": ',
        b'", "',
        b'","',
        b"],",
        b"}]",
        b"[[",
        b"]]",
        b"{}",
        b"[]",
        b'""',
        b"null",
        b"true",
        b"false",
    ),
    *(
        b" ",
        b"  ",
        b"\n  ",
        b"\n",
        b"\t",
        b"00",
        b"12",
        b"-1",
        b".5",
        b"e10",
        b"E+",
        b"\\u",
        b"\\n",
        b'\\"',
        b"\\\\",
        b"d83d",
    ),
    *(b"name", b"na", b"me", b"ab", b"abc", b'a":', b'b"', "é".encode(), "日本".encode(), "😀".encode()),
    *("日".encode()[:2], "😀".encode()[:3], "😀".encode()[3:] + b'"', b'x"}', b'1,"', b"aaaa"),
]
JSON_BYTES = SmallVocabulary(list(dict.fromkeys([*BYTES, *JSON_PIECES])))
"""Every byte, and pieces that cross the borders of strings, numbers and characters."""
