"""Steps 2 and 3 of the walk: one pass of the forward, run open, seen from its last token.

In: a runner whose KV pool holds the sequence's earlier positions, and the tokens of this step. Out: ``SeenForward``:
the embedding, the place, each operation's shape and range, what each layer adds to the residual stream, where the token
looks, and what it would say if the model ended there; and the logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.lens import LensRow, lens_of
from cutaway.audit.taps.attention_rows import attention_rows
from cutaway.audit.walk.attention import Looks, SeenAttention, average_looks, see_attention
from cutaway.audit.walk.tokens import SeenToken
from cutaway.audit.walk.vectors import Spread, spread
from cutaway.engine.runner import ModelRunner
from cutaway.memory.kv_read import read_keys, read_values
from cutaway.model.batch import Piece, make_batch
from cutaway.model.shapes import TAPS, evaluate, taps_of
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.tokenizer.tokenizer import Tokenizer

FIRST_NUMBERS: Final = 4
GUESSES: Final = 5
QUANTIZED: Final = "_input"  # the end of the names of taps that show a quantised input

PARTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"head_norm": ("T", "H·Dh+Hkv·Dh"), "rope": ("T", "H·Dh+Hkv·Dh"), "kv_write": ("T", "2·Hkv·Dh")}
)
"""What an operation writes where its tap shows more, the rows of qkv: head_norm and rope change queries and keys in
place, the first columns; kv_write stores keys and values, the last, in the cache and in the cache's type, and is shown
as attention will read them.
"""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SeenOperation:
    """What one operation wrote."""

    name: str  # of the tap
    layer: int  # -1 outside the layers
    symbolic: tuple[str, ...]  # shape in the shape table's dimensions
    shape: tuple[int, ...]
    dtype: str
    last: Spread  # of the last token's row


@dataclass(frozen=True)
class SeenEmbedding:
    """The embedding of one token."""

    position: int
    id: int
    piece: str
    first_numbers: tuple[float, ...]
    row: Spread


@dataclass(frozen=True)
class SeenPair:
    """Two numbers of a query or key head, which are turned together by an angle that grows with the position."""

    pair: int
    radians: float  # a position
    positions_per_turn: float
    cosine: float  # at the last token's position
    sine: float


@dataclass(frozen=True)
class SeenLayer:
    """What a layer does to the last token's row of the residual stream."""

    layer: int
    before: Spread  # the stream
    attention_adds: Spread
    between: Spread  # the stream after it
    ffn_adds: Spread
    after: Spread  # the stream after that
    attention: SeenAttention
    lens: LensRow  # what the model would say if this were the last layer
    operations: tuple[SeenOperation, ...]


@dataclass(frozen=True)
class SeenForward:
    """One pass of the forward."""

    tokens: int  # T, computed in this step
    context: int  # positions that the last token attends
    embeddings: tuple[SeenEmbedding, ...]  # of this step's tokens
    pairs: tuple[SeenPair, ...]  # none without rotary positions
    outside: tuple[SeenOperation, ...]  # operations outside the layers
    embedding_lens: LensRow  # what it would say if there were no layers
    layers: tuple[SeenLayer, ...]
    attention: Looks  # averaged over all heads and layers


class _Recorder:
    """A tap that keeps the last token's row of each array and its attention in each layer, and all rows of the
    embedding with what positions added.
    """

    def __init__(self, runner: ModelRunner, batch: Batch) -> None:
        self.operations: dict[tuple[str, int], SeenOperation] = {}
        self.rows: dict[tuple[str, int], Array] = {}
        self.embedded: Array = np.empty(0)
        self.attention: list[Array] = []
        self._sizes = {**runner.dimensions, "T": len(batch.tokens), "O": len(batch.output_rows)}
        self._runner, self._batch, self._vocab_size = runner, batch, runner.vocab_size
        self._kv, self._pages, self._length = runner.kv, batch.block_tables[0], int(batch.positions[-1]) + 1
        self._present = taps_of(runner.config)
        self._before = ""  # the tap before

    def __call__(self, name: str, layer: int, array: Array) -> None:
        # A quantised input is shown as the whole buffer; what is valid in it has the shape of what was quantised.
        quantized = name.endswith(QUANTIZED)
        symbolic = TAPS[self._before if quantized else name]
        shape = self._shape(symbolic)
        row = np.array(array[shape[0] - 1, : self._vocab_size if name.startswith("logits") else shape[1]])
        self.rows[name, layer] = row
        if name == "add_positions":
            self.embedded = np.array(array)
        elif name == "attention":
            last = np.array([len(self._batch.tokens) - 1])
            found = attention_rows(self._runner, self._runner.workspace, self._kv, self._batch, layer, last)
            self.attention.append(found.weights()[0])
        if name not in self._present:
            return
        if name in PARTS:
            symbolic = PARTS[name]
            shape = self._shape(symbolic)
            row = self._written(layer) if name == "kv_write" else row[: shape[1]]
        dtype = self._kv.keys.dtype if name == "kv_write" else row.dtype
        self.operations[name, layer] = SeenOperation(name, layer, symbolic, shape, str(dtype), spread(row))
        self._before = name

    def _written(self, layer: int) -> Array:
        """The last token's key and value, as attention will take them from the cache."""
        parts = [read(self._kv, layer, self._pages, self._length)[-1] for read in (read_keys, read_values)]
        return np.concatenate(parts, axis=None)

    def _shape(self, symbolic: Sequence[str]) -> tuple[int, ...]:
        return tuple(evaluate(entry, self._sizes) for entry in symbolic)


class OpenStep(NamedTuple):
    """A pass that has been run open."""

    batch: Batch
    start: int  # position of its first token
    rows: Mapping[tuple[str, int], Array]  # the last token's, by tap and layer
    embedded: Array  # [T, D]
    attention: Sequence[Array]  # of each layer, the last token's probabilities [H, C]
    operations: Mapping[tuple[str, int], SeenOperation]
    logits: Floats  # [V] of the last token


def run_open(runner: ModelRunner, tokens: Sequence[SeenToken], start: int) -> OpenStep:
    """Compute the tokens from position ``start`` on; those before it are in the cache.

    The sequence has the whole pool: its page table is 0, 1, 2, …
    """
    batch = make_batch([Piece(start, [token.id for token in tokens[start:]], list(range(runner.kv.num_pages)))])
    recorder = _Recorder(runner, batch)
    logits = np.array(runner.step_open(batch, recorder)[0])
    return OpenStep(batch, start, recorder.rows, recorder.embedded, recorder.attention, recorder.operations, logits)


def see_looks(runner: ModelRunner, tokens: Sequence[SeenToken], step: OpenStep) -> list[SeenAttention]:
    """The last token's attention in each layer."""
    return [see_attention(each, runner.config.num_kv_heads, tokens) for each in step.attention]


def average_of_layers(looks: Sequence[SeenAttention], tokens: Sequence[SeenToken]) -> Looks:
    """Over all heads of all layers."""
    return average_looks(np.array([each.average.probabilities for each in looks]), tokens)


def see_forward(
    runner: ModelRunner, tokenizer: Tokenizer, tokens: Sequence[SeenToken], step: OpenStep, chosen: int
) -> SeenForward:
    """Everything that a pass shows. tokens: the sequence up to its last; chosen: the token that followed."""
    rows, num_layers = step.rows, runner.config.num_layers
    stream = [rows["add_positions", -1], *(rows["ffn_residual", layer] for layer in range(num_layers))]
    (lens,) = lens_of(runner, tokenizer.piece, np.array(stream)[:, None], [chosen], GUESSES)
    looks = see_looks(runner, tokens, step)
    layers = tuple(
        SeenLayer(
            layer=layer,
            before=spread(stream[layer]),
            attention_adds=spread(rows["attention_post_norm", layer]),
            between=spread(rows["attention_residual", layer]),
            ffn_adds=spread(rows["ffn_post_norm", layer]),
            after=spread(stream[layer + 1]),
            attention=looks[layer],
            lens=lens[1 + layer],
            operations=tuple(each for (_, where), each in step.operations.items() if where == layer),
        )
        for layer in range(num_layers)
    )
    return SeenForward(
        tokens=len(tokens) - step.start,
        context=len(tokens),
        embeddings=tuple(
            SeenEmbedding(token.position, token.id, token.piece, tuple(map(float, row[:FIRST_NUMBERS])), spread(row))
            for token, row in zip(tokens[step.start :], step.embedded, strict=True)
        ),
        pairs=_pairs(runner.loaded.record.inverse_frequencies, rows["rope_angles", -1]),
        outside=tuple(each for (_, layer), each in step.operations.items() if layer < 0),
        embedding_lens=lens[0],
        layers=layers,
        attention=average_of_layers(looks, tokens),
    )


def _pairs(frequencies: Array, angles: Array) -> tuple[SeenPair, ...]:
    """Of the first table. frequencies: [G, R/2] radians a position; angles: [G · R] cosine and sine of each pair in
    turn; G is 0 without rotary positions.
    """
    first = frequencies[0] if len(frequencies) else np.empty(0)
    return tuple(
        SeenPair(pair, float(each), float(2 * np.pi / each), float(angles[2 * pair]), float(angles[2 * pair + 1]))
        for pair, each in enumerate(first)
    )
