"""The operations of an open step, hashed row by row: for each operation of each layer a rolling hash over a sequence.

In: an open step's arrays, by ``tap``. Out: for each sequence a digest of every operation's output at all its positions
so far, the same however its tokens were cut into steps. What a step brings counts when the step does.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cutaway.engine.steps import TapName
from cutaway.model.config import ModelConfig
from cutaway.model.shapes import LAYER_TAPS, taps_of
from cutaway.scheduler.step import Step, StepPiece

if TYPE_CHECKING:
    from hashlib import _Hash

DIGEST: Final = 8  # bytes of SHA-256 that are kept of each operation: enough to find the first that differs
BEFORE: Final = ("embed", "add_positions", "rope_angles")
AFTER: Final = ("take_rows", "output_norm", "head_input", "logits", "logits_softcap")
"""Of the rows from which tokens are sampled."""


class Operation(NamedTuple):
    """An operation of a model: its tap's name, and its layer; -1 outside of the layers."""

    name: str
    layer: int

    def __str__(self) -> str:
        return self.name if self.layer < 0 else f"layers.{self.layer}.{self.name}"


class Rows(NamedTuple):
    """Rows of one operation."""

    operation: Operation
    position: int  # of the first
    values: npt.NDArray[Any]  # [n, width]; the engine's own memory: copy what you keep


class RowSink(Protocol):
    """Who wants the values too."""

    def take(self, request_id: str, choices: Sequence[int], rows: Rows) -> None:
        """Rows of an operation that are new, of a sequence that stands for these choices."""


class Operations:
    """Which operations a model has, in the order in which they come, and how wide their rows are."""

    def __init__(self, config: ModelConfig) -> None:
        has = taps_of(config)
        layer = [name for name in LAYER_TAPS if name in has]
        self.order = [
            *(Operation(name, -1) for name in BEFORE if name in has),
            *(Operation(name, number) for number in range(config.num_layers) for name in layer),
            *(Operation(name, -1) for name in AFTER if name in has),
        ]
        self.place = {(each.name, each.layer): place for place, each in enumerate(self.order)}
        attended = config.num_heads * config.head_dim
        self._widths = {
            "attention_input": config.width,
            "attention_output_input": attended,
            "ffn_input": config.width,
            "down_input": config.ffn_width,
            "head_input": config.width,
            "logits": config.vocab_size,
            "logits_softcap": config.vocab_size,
        }  # where the buffer is wider than what is in it

    def used(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The columns that belong to the operation."""
        return array[:, : self._widths[name]] if name in self._widths else array

    def difference(self, one: bytes, other: bytes) -> Operation | None:
        """The first operation whose digests differ, in two rows of digests; None where none does."""
        for place, operation in enumerate(self.order):
            part = slice(DIGEST * place, DIGEST * (place + 1))
            if one[part] != other[part]:
                return operation
        return None


class SequenceHashes:
    """The hashes of one request's choices. Choices that share a sequence share them; none is changed in place."""

    def __init__(self, num_choices: int, num_operations: int) -> None:
        first: list[_Hash] = [hashlib.sha256() for _ in range(num_operations)]
        self._states = [first] * num_choices
        self._lengths = [0] * num_choices

    def length(self, choice: int) -> int:
        """Positions so far."""
        return self._lengths[choice]

    def state(self, choice: int) -> "list[_Hash]":
        """Of each operation. Not to be changed."""
        return self._states[choice]

    def put(self, choices: Iterable[int], state: "list[_Hash]", length: int) -> None:
        """The state of these choices from now on."""
        for choice in choices:
            self._states[choice], self._lengths[choice] = state, max(length, self._lengths[choice])

    def digests(self, choice: int) -> bytes:
        """The first ``DIGEST`` bytes of each operation's hash, one after the other."""
        return b"".join(each.digest()[:DIGEST] for each in self._states[choice])


class _Part(NamedTuple):
    """A piece of the step, and what becomes of its hashes."""

    piece: StepPiece
    choices: tuple[int, ...]
    hashes: SequenceHashes
    first: int  # its first row in the step
    skipped: int  # rows whose positions were hashed before
    output: int | None  # the row of logits from which a token is sampled
    states: "list[_Hash]"


class OpenStep:
    """Looks into one step (``engine.steps.Look``)."""

    def __init__(
        self, step: Step, operations: Operations, hashes: Mapping[str, SequenceHashes], sink: RowSink | None
    ) -> None:
        """hashes: of each request that is recorded."""
        self._operations, self._sink = operations, sink
        self._parts: list[_Part] = []
        row = output = 0
        for piece in step.pieces:
            output += piece.num_outputs
            choices, own = piece.sequence.choices, hashes.get(piece.sequence.request.id)
            if own is not None:
                length = own.length(choices[0])
                assert piece.start <= length, "a part of the sequence was never computed open"
                skipped = min(length - piece.start, piece.num_tokens)
                last = output - 1 if piece.choices and piece.num_outputs else None
                self._parts.append(_Part(piece, choices, own, row, skipped, last, list(own.state(choices[0]))))
            row += piece.num_tokens

    @property
    def wanted(self) -> Set[TapName]:
        """All operations that the model has."""
        return self._operations.place.keys()

    def see(self, name: str, layer: int, array: npt.NDArray[Any]) -> None:
        """Hash the new rows of an operation."""
        place = self._operations.place[name, layer]
        operation, used = self._operations.order[place], self._operations.used(name, array)
        for part in self._parts:
            piece, end = part.piece, part.first + part.piece.num_tokens
            if name in AFTER:
                if part.output is None:
                    continue
                rows = Rows(operation, piece.start + piece.num_tokens - 1, used[part.output : part.output + 1])
            else:
                rows = Rows(operation, piece.start + part.skipped, used[part.first + part.skipped : end])
            if not len(rows.values):
                continue
            state = part.states[place].copy()
            state.update(np.ascontiguousarray(rows.values).data)
            part.states[place] = state
            if self._sink is not None:
                self._sink.take(piece.sequence.request.id, part.choices, rows)

    def commit(self) -> None:
        """The step counts."""
        for part in self._parts:
            part.hashes.put(part.choices, part.states, part.piece.start + part.piece.num_tokens)
