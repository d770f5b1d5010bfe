"""The operations in NumPy float64 on dequantised weights: the definition of right, written to be obvious, not fast.

In and out: the same arguments as the compiled operations, but with float64 buffers, ``DenseWeight`` and ``DenseNorm``
objects in the place of weight and norm records, and a ``ReferenceKV`` in the place of the cache's addresses.
``quantize_rows`` keeps the numbers as they are.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.ops.cpu.activation import GELU, SILU
from cutaway.ops.cpu.arrays import Activation, Batch, Ints

Array = npt.NDArray[np.float64]


class DenseWeight(NamedTuple):
    """A weight matrix as numbers."""

    matrix: Any  # [N, K] floating; float32 holds a file's dequantised values exactly
    bias: Any  # [N] or None
    block_type: str  # of the file's blocks, by name


class DenseNorm(NamedTuple):
    """A norm; without a weight it stands for one that the model doesn't have."""

    weight: Any  # [D] or None
    bias: Any  # [D] or None
    epsilon: float
    centred: bool


class ReferenceKV(NamedTuple):
    """Keys and values, by layer and slot; slot = page · page_length + position within the page."""

    keys: Array  # [L, slots, Hkv, Dh]
    values: Array  # [L, slots, Hkv, Dh]
    page_length: int


def slots_of(batch: Batch, kv: ReferenceKV, sequence: int, positions: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Where a sequence's positions lie in the cache."""
    pages = batch.block_tables[sequence, positions // kv.page_length]
    slots: npt.NDArray[Any] = pages * kv.page_length + positions % kv.page_length
    return slots


def embed(team: Any, weights: Any, tokens: Ints, scale: float, x: Array) -> None:
    """x[t] = scale · W[tokens[t]]."""
    x[:] = weights[0].matrix[tokens].astype(np.float64) * float(scale)


def add_positions(team: Any, rows: Array, positions: Ints, x: Array) -> None:
    """x[t] += rows[positions[t]], where there are rows."""
    if len(rows):
        x += rows[positions]


def rope_angles(team: Any, positions: Ints, inverse_frequencies: Array, magnitudes: Array, angles: Array) -> None:
    """Cosine and sine of position · frequency, times the table's magnitude: table by table, pair by pair."""
    radians = np.multiply.outer(positions.astype(np.float64), inverse_frequencies)  # [T, G, R/2]
    waves = np.stack([np.cos(radians), np.sin(radians)], axis=-1) * magnitudes[:, None, None]
    angles[:] = waves.reshape(angles.shape)


def _normed(x: Array, kind: DenseNorm) -> Array:
    """(x - centre) / √(mean((x - centre)²) + ε) · weight + bias, over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True) if kind.centred else x
    scaled = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + float(kind.epsilon)) * kind.weight
    result: Array = scaled + kind.bias if kind.centred else scaled
    return result


def norm(team: Any, x: Array, kind: DenseNorm, out: Array) -> None:
    """out = the norm of each row, if the model has it."""
    if kind.weight is not None:
        out[:] = _normed(x, kind)


def head_norm(
    team: Any,
    qkv: Array,
    query_kind: DenseNorm,
    key_kind: DenseNorm,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
) -> None:
    """The norm of each query head and of each key head, if the model has it."""
    if query_kind.weight is not None:
        heads = qkv.reshape(len(qkv), num_heads + 2 * num_kv_heads, head_dim)
        heads[:, :num_heads] = _normed(heads[:, :num_heads], query_kind)
        keys = slice(num_heads, num_heads + num_kv_heads)
        heads[:, keys] = _normed(heads[:, keys], key_kind)


def quantize_rows(team: Any, x: Array, activation: Activation) -> None:
    """Keep the rows for the matrix product."""
    activation.q[: x.shape[0], : x.shape[1]] = x


def matmul(team: Any, weights: Any, activation: Activation, room: Any, out: Array) -> None:
    """x @ W.T + bias for each segment, side by side."""
    column = 0
    for weight in weights:
        rows, columns = weight.matrix.shape
        product = activation.q[: out.shape[0], :columns] @ weight.matrix.astype(np.float64).T
        out[:, column : column + rows] = product if weight.bias is None else product + weight.bias
        column += rows


def rope(
    team: Any,
    qkv: Array,
    angles: Array,
    table: int,
    rotary_dim: int,
    num_heads: int,
    head_dim: int,
    interleaved: bool,
) -> None:
    """Turn each pair (a, b) of the first R numbers of the first heads by its angle in the table, if there is one."""
    if table < 0:
        return
    heads = qkv[:, : num_heads * head_dim].reshape(len(qkv), num_heads, head_dim).copy()
    half = rotary_dim // 2
    first, second = (
        (slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)) if interleaved else (slice(0, half), slice(half, rotary_dim))
    )
    a, b = heads[..., first].copy(), heads[..., second].copy()
    own = angles[:, None, table * rotary_dim : (table + 1) * rotary_dim]
    cosine, sine = own[..., 0::2], own[..., 1::2]
    heads[..., first], heads[..., second] = a * cosine - b * sine, a * sine + b * cosine
    qkv[:, : num_heads * head_dim] = heads.reshape(len(qkv), -1)


def kv_write(
    team: Any,
    qkv: Array,
    batch: Batch,
    kv: ReferenceKV,
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
) -> None:
    """Each token's key and value into its slot."""
    heads = qkv.reshape(len(qkv), num_heads + 2 * num_kv_heads, head_dim)
    for t, (sequence, position) in enumerate(zip(batch.sequences, batch.positions, strict=True)):
        slot = slots_of(batch, kv, sequence, np.array([position]))[0]
        kv.keys[layer, slot] = heads[t, num_heads : num_heads + num_kv_heads]
        kv.values[layer, slot] = heads[t, num_heads + num_kv_heads :]


def attention(
    team: Any,
    qkv: Array,
    batch: Batch,
    kv: ReferenceKV,
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    window: int,
    scale: float,
    cap: float,
    scratch: Any,
    out: Array,
) -> None:
    """softmax(scale · q·k) @ v over the positions up to the token's own, or over the last ``window`` of them; query
    head h reads KV head h // (H / Hkv). With a cap, scores are cap · tanh(score / cap).
    """
    group = num_heads // num_kv_heads
    for t, (sequence, position) in enumerate(zip(batch.sequences, batch.positions, strict=True)):
        attended = np.arange(max(0, position + 1 - window) if window else 0, position + 1)
        slots = slots_of(batch, kv, sequence, attended)
        keys, values = kv.keys[layer, slots], kv.values[layer, slots]  # [positions, Hkv, Dh]
        queries = qkv[t, : num_heads * head_dim].reshape(num_kv_heads, group, head_dim)
        scores = np.einsum("kgd,pkd->kgp", queries, keys) * float(scale)
        if cap:
            scores = float(cap) * np.tanh(scores / float(cap))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[t] = np.einsum("kgp,pkd->kgd", weights, values).reshape(-1)


def _silu(x: Array) -> Array:
    """x / (1 + e^-x)."""
    with np.errstate(over="ignore"):  # e^-x = inf gives the right limit, 0
        result: Array = x / (1.0 + np.exp(-x))
    return result


def _gelu(x: Array) -> Array:
    """x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    result: Array = 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return result


def activate(team: Any, gate_up: Array, kind: int, out: Array) -> None:
    """a(gate) · up, or a(up) where there is no gate."""
    activation = {SILU: _silu, GELU: _gelu}[kind]
    gated = gate_up.shape[1] == 2 * out.shape[1]
    out[:] = activation(gate_up[:, : out.shape[1]]) * gate_up[:, out.shape[1] :] if gated else activation(gate_up)


def softcap(team: Any, x: Array, cap: float) -> None:
    """x = cap · tanh(x / cap), if there is a cap."""
    if cap:
        x[:] = float(cap) * np.tanh(x / float(cap))


def add_rows(team: Any, x: Array, y: Array) -> None:
    """x += y."""
    x += y


def take_rows(team: Any, x: Array, rows: Ints, out: Array) -> None:
    """out = x[rows]."""
    out[:] = x[rows]


def tap(team: Any, name: str, layer: int, array: Any) -> None:
    """Nothing; a run that wants to look puts its own function here."""


TABLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            activate,
            add_positions,
            add_rows,
            attention,
            embed,
            head_norm,
            kv_write,
            matmul,
            norm,
            quantize_rows,
            rope,
            rope_angles,
            softcap,
            take_rows,
            tap,
        )
    }
)
"""The forward's table for the reference run."""
