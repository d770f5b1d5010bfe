"""The shape table: every dimension, weight and buffer of a model, each shape in terms of the named dimensions.

In: a model's config and the limits of the engine (tokens a step, rows of logits, threads, context). Out: rows with
symbolic and actual shapes and bytes. The loader checks the file against it, the workspace is allocated from it, the
open run checks what each operation wrote against it, and ``cutaway shapes`` prints it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cutaway.model.config import ModelConfig
from cutaway.ops.cpu.arrays import ROW_GROUP
from cutaway.ops.cpu.attention import MOST_SHARED, PARTIAL_EXTRA, RUN_LENGTH, TILE, padded_rows
from cutaway.ops.cpu.kv_tiles import SUBTILE, KVFormat
from cutaway.ops.cpu.tiles.layout import TILE_ROWS
from cutaway.ops.cpu.tiles.panel import PANEL_ROWS, room_bytes

DIMENSIONS: Final[Mapping[str, str]] = {
    "T": "tokens of a step, all sequences together (at most)",
    "O": "rows of logits of a step (at most)",
    "n": "threads of the team",
    "C": "positions of a context (at most)",
    "P": "positions that have a row of their own to be added to the embedding",
    "S": f"sub-tiles of {SUBTILE} positions in the KV pool",
    "L": "layers",
    "D": "model width",
    "H": "query heads",
    "Hkv": "key/value heads",
    "Dh": "width of a head",
    "R": "numbers of a head that rotary positions turn",
    "G": "tables of rotary angles",
    "F": "feed-forward width",
    "U": "gate and up side by side: 2·F, or F where there is no gate",
    "V": "vocabulary",
    "Vt": f"vocabulary, rounded up to whole tiles of {TILE_ROWS} rows: a last, partial tile writes so many",
    "K": "widest input of a matrix product: max(D, H·Dh, F)",
    "Q": f"rows of an attention item: {RUN_LENGTH} queries × H/Hkv heads, padded to the kernels' block",
    "J": f"partials on attention's stack: a tree over C/{TILE} tiles is so deep",
    "E": "floats of a partial: Dh + 32",
    "W": "bytes in which a thread expands weights for products with matrix registers; 0 without these",
}


@dataclass(frozen=True)
class Limits:
    """How much a step and a sequence may hold; chosen when the engine starts."""

    max_tokens: int  # T
    max_outputs: int  # O
    threads: int  # n
    context: int  # C
    subtiles: int  # S


@dataclass(frozen=True)
class Row:
    """One tensor: its shape as products of dimensions (``"2·F"``), its type, and what it is."""

    name: str
    shape: tuple[str, ...]
    dtype: str  # NumPy's name, or "blocks" for a weight in the file's block format
    meaning: str

    def size(self, dimensions: Mapping[str, int]) -> tuple[int, ...]:
        """The actual shape."""
        return tuple(evaluate(entry, dimensions) for entry in self.shape)

    def nbytes(self, dimensions: Mapping[str, int]) -> int:
        """Bytes of the actual shape; not for "blocks", whose size the file says."""
        return math.prod(self.size(dimensions)) * np.dtype(self.dtype).itemsize


def evaluate(entry: str, dimensions: Mapping[str, int]) -> int:
    """The value of a symbolic extent: products of names and numbers with sums and whole quotients,
    ``"H·Dh+2·Hkv·Dh"``, ``"K/32"``.
    """

    def product(term: str) -> int:
        numerator, _, denominator = term.partition("/")
        value = math.prod(int(factor) if factor.isdigit() else dimensions[factor] for factor in numerator.split("·"))
        return value // int(denominator) if denominator else value

    return sum(product(term) for term in entry.split("+"))


QKV_WIDTH: Final = "H·Dh+2·Hkv·Dh"
INPUT_ROWS: Final = f"T+{PANEL_ROWS - 1}"  # panels read whole blocks of rows
ROW_GROUPS: Final = f"T/{ROW_GROUP}+2"  # enough for a last block of rows that is not full

WEIGHTS: Final = (
    Row("token_embd.weight", ("V", "D"), "blocks", "embedding: a row for each token"),
    Row("position_embd.weight", ("P", "D"), "float32", "a row for each position, added to the embedding"),
    Row("rope_freqs.weight", ("R/2",), "float32", "divisors of the rotary frequencies, in some models"),
    Row("blk.{l}.attn_norm.weight", ("D",), "float32", "norm before attention"),
    Row("blk.{l}.attn_norm.bias", ("D",), "float32", "its bias"),
    Row("blk.{l}.attn_qkv.weight", (QKV_WIDTH, "D"), "blocks", "queries, keys, values in one"),
    Row("blk.{l}.attn_qkv.bias", (QKV_WIDTH,), "float32", "their bias"),
    Row("blk.{l}.attn_q.weight", ("H·Dh", "D"), "blocks", "queries"),
    Row("blk.{l}.attn_q.bias", ("H·Dh",), "float32", "bias of the queries"),
    Row("blk.{l}.attn_k.weight", ("Hkv·Dh", "D"), "blocks", "keys"),
    Row("blk.{l}.attn_k.bias", ("Hkv·Dh",), "float32", "bias of the keys"),
    Row("blk.{l}.attn_v.weight", ("Hkv·Dh", "D"), "blocks", "values"),
    Row("blk.{l}.attn_v.bias", ("Hkv·Dh",), "float32", "bias of the values"),
    Row("blk.{l}.attn_q_norm.weight", ("Dh",), "float32", "norm of each query head"),
    Row("blk.{l}.attn_k_norm.weight", ("Dh",), "float32", "norm of each key head"),
    Row("blk.{l}.attn_output.weight", ("D", "H·Dh"), "blocks", "attention's output"),
    Row("blk.{l}.attn_output.bias", ("D",), "float32", "its bias"),
    Row("blk.{l}.post_attention_norm.weight", ("D",), "float32", "norm of attention's output"),
    Row("blk.{l}.ffn_norm.weight", ("D",), "float32", "norm before the feed-forward"),
    Row("blk.{l}.ffn_norm.bias", ("D",), "float32", "its bias"),
    Row("blk.{l}.ffn_gate.weight", ("F", "D"), "blocks", "feed-forward, gate"),
    Row("blk.{l}.ffn_up.weight", ("F", "D"), "blocks", "feed-forward, up"),
    Row("blk.{l}.ffn_up.bias", ("F",), "float32", "its bias"),
    Row("blk.{l}.ffn_down.weight", ("D", "F"), "blocks", "feed-forward, down"),
    Row("blk.{l}.ffn_down.bias", ("D",), "float32", "its bias"),
    Row("blk.{l}.post_ffw_norm.weight", ("D",), "float32", "norm of the feed-forward's output"),
    Row("output_norm.weight", ("D",), "float32", "norm before the head"),
    Row("output_norm.bias", ("D",), "float32", "its bias"),
    Row("output.weight", ("V", "D"), "blocks", "head; absent where it is tied to the embedding"),
)
"""Weights under the file's names; ``{l}`` stands for each layer. A family has some of them."""

OPTIONAL: Final = ("output.weight", "rope_freqs.weight")
"""What a model of a family that knows it may lack."""

GATE_IN_UP: Final = Row("blk.{l}.ffn_up.weight", ("U", "D"), "blocks", "feed-forward, gate and up in one")


def weights_of(config: ModelConfig) -> tuple[Row, ...]:
    """The rows of ``WEIGHTS`` that this model has, or may have."""
    gate_in_up = config.gated and not config.has("blk.{l}.ffn_gate.weight")
    return tuple(
        GATE_IN_UP if gate_in_up and row.name == GATE_IN_UP.name else row for row in WEIGHTS if config.has(row.name)
    )


class Part(NamedTuple):
    """Rows first … first + rows - 1 of a matrix of the file."""

    matrix: str  # its name, without what stands before and behind: "attn_qkv"
    first: int
    rows: int


def layer_parts(config: ModelConfig) -> dict[str, Part]:
    """Where in the file the matrices of a layer are, in the order of ``Model.layers``. Q, K and V may be parts of one
    matrix, gate and up too; a gate that the model doesn't have is a part without rows.
    """
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    D, F = config.width, config.ffn_width
    if config.has("blk.{l}.attn_qkv.weight"):
        attention = {
            "attn_q": Part("attn_qkv", 0, queries),
            "attn_k": Part("attn_qkv", queries, keys),
            "attn_v": Part("attn_qkv", queries + keys, keys),
        }
    else:
        attention = {name: Part(name, 0, N) for name, N in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys))}
    if config.has("blk.{l}.ffn_gate.weight"):
        gate, up = Part("ffn_gate", 0, F), Part("ffn_up", 0, F)
    elif config.gated:
        gate, up = Part("ffn_up", 0, F), Part("ffn_up", F, F)
    else:
        gate, up = Part("ffn_up", 0, 0), Part("ffn_up", 0, F)
    output, down = Part("attn_output", 0, D), Part("ffn_down", 0, D)
    return {**attention, "attn_output": output, "ffn_gate": gate, "ffn_up": up, "ffn_down": down}


def kv_rows(layout: KVFormat) -> tuple[Row, ...]:
    """The KV cache in this data type: keys, values and, behind int8 numbers, their scales."""
    heads, slots = ("L", "S", "Hkv"), str(SUBTILE)
    numbers = (
        Row("kv.keys", (*heads, "Dh", slots), layout.dtype, "keys, a lane is a position"),
        Row("kv.values", (*heads, slots, "Dh"), layout.dtype, "values, a lane is a dimension"),
    )
    scales = (
        Row("kv.key_scales", (*heads, slots), "float32", "behind the keys of a head and sub-tile: each one's scale"),
        Row("kv.value_scales", (*heads, slots), "float32", "behind its values: each one's scale"),
    )
    return numbers + scales if layout.scaled else numbers


BUFFERS: Final = (
    Row("x", ("T", "D"), "float32", "the residual stream"),
    Row("h", ("T", "D"), "float32", "a block's input (normed) and its output"),
    Row("angles", ("T", "G·R"), "float32", "cosine and sine of each pair's angle, by each table"),
    Row("activation.q", (INPUT_ROWS, "K"), "int8", "quantised input of a matrix product"),
    Row("activation.scale", (ROW_GROUPS, "K/32", str(ROW_GROUP)), "float32", "its scale for each block of 32"),
    Row("activation.block_sum", (ROW_GROUPS, "K/32", str(ROW_GROUP)), "int32", "its sum over each block"),
    Row("activation.scaled_sum", (ROW_GROUPS, "K/32", str(ROW_GROUP)), "float32", "scale · sum"),
    Row("panels", ("n", "W"), "int8", "matrix products: weights expanded, products to be scaled"),
    Row("qkv", ("T", QKV_WIDTH), "float32", "queries, keys, values side by side"),
    Row("attended", ("T", "H·Dh"), "float32", "attention's result, before its output matrix"),
    Row("gate_up", ("T", "U"), "float32", "gate and up side by side"),
    Row("gated", ("T", "F"), "float32", "what the activation makes of them"),
    Row("last", ("O", "D"), "float32", "residual rows whose logits are wanted"),
    Row("logits", ("O", "Vt"), "float32", "one score for each token of the vocabulary"),
    Row("scratch.queries", ("n", "Q", "Dh"), "float32", "attention: an item's queries"),
    Row("scratch.scores", ("n", "Q", str(TILE)), "float32", "attention: scores of one KV tile"),
    Row("scratch.stack", ("n", "J", "Q", "E"), "float32", "attention: partials to be merged"),
    Row("scratch.shared", (str(MOST_SHARED), "Q", "E"), "float32", "attention: partials of split contexts"),
)
"""The workspace, under the names of ``records.Workspace``."""

LAYER_TAPS: Final[Mapping[str, tuple[str, ...]]] = {
    "attention_norm": ("T", "D"),
    "attention_input": (INPUT_ROWS, "K"),
    "qkv": ("T", QKV_WIDTH),
    "head_norm": ("T", QKV_WIDTH),
    "rope": ("T", QKV_WIDTH),
    "kv_write": ("T", QKV_WIDTH),
    "attention": ("T", "H·Dh"),
    "attention_output_input": (INPUT_ROWS, "K"),
    "attention_output": ("T", "D"),
    "attention_post_norm": ("T", "D"),
    "attention_residual": ("T", "D"),
    "ffn_norm": ("T", "D"),
    "ffn_input": (INPUT_ROWS, "K"),
    "gate_up": ("T", "U"),
    "activate": ("T", "F"),
    "down_input": (INPUT_ROWS, "K"),
    "down": ("T", "D"),
    "ffn_post_norm": ("T", "D"),
    "ffn_residual": ("T", "D"),
}
"""What each tap within a layer shows, once a layer."""

STEP_TAPS: Final[Mapping[str, tuple[str, ...]]] = {
    "embed": ("T", "D"),
    "add_positions": ("T", "D"),
    "rope_angles": ("T", "G·R"),
    "take_rows": ("O", "D"),
    "output_norm": ("O", "D"),
    "head_input": (INPUT_ROWS, "K"),
    "logits": ("O", "Vt"),
    "logits_softcap": ("O", "Vt"),
}
"""What each tap outside the layers shows, once a step."""

TAPS: Final[Mapping[str, tuple[str, ...]]] = {**STEP_TAPS, **LAYER_TAPS}
"""All taps. A quantised input (``…_input``) is shown as the whole buffer, whose T is the limit, not the step's."""


def taps_of(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """The taps of the operations that this model has. The forward reaches the others too, which do nothing."""
    has = {
        "add_positions": config.has("position_embd.weight"),
        "rope_angles": bool(config.ropes),
        "rope": bool(config.ropes),
        "head_norm": config.has("blk.{l}.attn_q_norm.weight"),
        "attention_post_norm": config.has("blk.{l}.post_attention_norm.weight"),
        "ffn_post_norm": config.has("blk.{l}.post_ffw_norm.weight"),
        "logits_softcap": config.logits_cap > 0,
    }
    return {name: shape for name, shape in TAPS.items() if has.get(name, True)}


def dimensions(config: ModelConfig, limits: Limits) -> dict[str, int]:
    """The value of every named dimension."""
    group = config.num_heads // config.num_kv_heads
    tiles = -(-limits.context // TILE)
    widest = max(config.width, config.num_heads * config.head_dim, config.ffn_width)
    return {
        "T": limits.max_tokens,
        "O": limits.max_outputs,
        "n": limits.threads,
        "C": limits.context,
        "S": limits.subtiles,
        "L": config.num_layers,
        "D": config.width,
        "H": config.num_heads,
        "Hkv": config.num_kv_heads,
        "Dh": config.head_dim,
        "P": config.context_length if config.has("position_embd.weight") else 0,
        "R": config.rotary_dim,
        "G": len(config.ropes),
        "F": config.ffn_width,
        "U": (1 + config.gated) * config.ffn_width,
        "V": config.vocab_size,
        "Vt": -(-config.vocab_size // TILE_ROWS) * TILE_ROWS,
        "K": widest,
        "Q": padded_rows(RUN_LENGTH * group),
        "J": tiles.bit_length() + 1,
        "E": config.head_dim + PARTIAL_EXTRA,
        "W": room_bytes(widest),
    }
