"""What each operation of a step must compute and move, from sizes alone.

In: a model's config, the bytes of its matrices, what a batch asks for. Out: for each tap of the forward, in its order,
operations and bytes.

Conventions. A multiplication and an addition are two operations; exp, sine, cosine, square root, division and rounding
are one each. A matrix product counts its 2·T·N·K int8 operations, not the few float32 ones that apply the blocks'
scales. Bytes are compulsory: each distinct byte that the operation reads or writes counts once, wherever in the caches
it may lie. Token ids, positions and page tables are not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cutaway.model.config import ModelConfig
from cutaway.ops.cpu.arrays import Batch

FLOAT = 4  # bytes


@dataclass(frozen=True)
class StepWork:
    """What a batch asks of a step."""

    tokens: int  # T
    outputs: int  # O
    attended: int  # pairs of a query and a position that it attends, of one head
    cached: int  # positions whose keys and values are read, all sequences together


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of one operation; ``shape`` shows what goes in and what comes out."""

    shape: str
    int8_operations: int = 0
    flops: int = 0  # float32
    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def step_work(batch: Batch) -> StepWork:
    """The work of a batch: each token attends the positions of its sequence up to its own."""
    lengths = np.zeros(len(batch.block_tables), np.int64)
    np.maximum.at(lengths, batch.sequences, batch.positions.astype(np.int64) + 1)
    return StepWork(
        tokens=len(batch.tokens),
        outputs=len(batch.output_rows),
        attended=int(batch.positions.sum(dtype=np.int64)) + len(batch.positions),
        cached=int(lengths.sum()),
    )


def _norm(rows: int, width: int) -> Cost:
    """Square, sum, and two products an element."""
    return Cost(
        f"{rows}×{width}",
        flops=4 * rows * width,
        weight_bytes=FLOAT * width,
        activation_bytes=2 * FLOAT * rows * width,
    )


def quantized_bytes(rows: int, width: int) -> int:
    """Bytes of quantised rows: int8 values; for each block of 32 a scale and two sums of 4 bytes."""
    return rows * (width + width // 32 * 3 * 4)


def _quantize(rows: int, width: int) -> Cost:
    """Absolute value, maximum, product and rounding an element."""
    return Cost(
        f"{rows}×{width}",
        flops=4 * rows * width,
        activation_bytes=FLOAT * rows * width + quantized_bytes(rows, width),
    )


def _product(rows: int, width: int, columns: int, weight_bytes: int) -> Cost:
    """Rows of ``width`` times a matrix of ``columns`` rows."""
    return Cost(
        f"{rows}×{width} · {width}×{columns}",
        int8_operations=2 * rows * width * columns,
        weight_bytes=weight_bytes,
        activation_bytes=quantized_bytes(rows, width) + FLOAT * rows * columns,
    )


def _add(rows: int, width: int) -> Cost:
    return Cost(f"{rows}×{width}", flops=rows * width, activation_bytes=3 * FLOAT * rows * width)


def _layer_costs(
    config: ModelConfig, layer: int, weight_bytes: Mapping[str, int], work: StepWork, element_bytes: int
) -> dict[str, Cost]:
    T, D, F = work.tokens, config.width, config.ffn_width
    H, Hkv, Dh = config.num_heads, config.num_kv_heads, config.head_dim
    qkv_width, rotated = (H + 2 * Hkv) * Dh, (H + Hkv) * Dh
    position_bytes = 2 * Hkv * Dh * element_bytes  # key and value of one position

    def weights(*names: str) -> int:
        return sum(weight_bytes[f"blk.{layer}.{name}.weight"] for name in names)

    return {
        "attention_norm": _norm(T, D),
        "attention_input": _quantize(T, D),
        "qkv": _product(T, D, qkv_width, weights("attn_q", "attn_k", "attn_v")),
        # A pair takes 4 products and 2 sums.
        "rope": Cost(
            f"{T}×{H + Hkv}×{Dh}",
            flops=3 * T * rotated,
            activation_bytes=2 * FLOAT * T * rotated + FLOAT * T * Dh,
        ),
        "kv_write": Cost(
            f"{T}×{2 * Hkv}×{Dh}",
            kv_bytes=T * position_bytes,
            activation_bytes=FLOAT * T * 2 * Hkv * Dh,
        ),
        # q·k and weight·v; for each score maximum, difference, exp and sum.
        "attention": Cost(
            f"{T}×{H}×{Dh} over {work.cached}×{Hkv}×{Dh}",
            flops=work.attended * H * (4 * Dh + 4),
            kv_bytes=work.cached * position_bytes,
            activation_bytes=2 * FLOAT * T * H * Dh,
        ),
        "attention_output_input": _quantize(T, H * Dh),
        "attention_output": _product(T, H * Dh, D, weights("attn_output")),
        "attention_residual": _add(T, D),
        "ffn_norm": _norm(T, D),
        "ffn_input": _quantize(T, D),
        "gate_up": _product(T, D, 2 * F, weights("ffn_gate", "ffn_up")),
        # Negation, exp, sum, quotient, product.
        "silu_mul": Cost(f"{T}×{2 * F} → {T}×{F}", flops=5 * T * F, activation_bytes=3 * FLOAT * T * F),
        "down_input": _quantize(T, F),
        "down": _product(T, F, D, weights("ffn_down")),
        "ffn_residual": _add(T, D),
    }


def step_costs(
    config: ModelConfig, weight_bytes: Mapping[str, int], work: StepWork, element_bytes: int
) -> dict[tuple[str, int], Cost]:
    """The cost of each operation, under (tap, layer), layer -1 outside the layers; in the forward's order.

    weight_bytes: bytes of each matrix under its name in the file. element_bytes: of a number in the KV cache.
    """
    T, O, D, V, Dh = work.tokens, work.outputs, config.width, config.vocab_size, config.head_dim
    embedding = weight_bytes["token_embd.weight"]
    before = {
        "embed": Cost(f"{T} → {T}×{D}", weight_bytes=T * (embedding // V), activation_bytes=FLOAT * T * D),
        # A pair takes a product, a sine and a cosine.
        "rope_angles": Cost(f"{T} → {T}×{Dh}", flops=3 * T * Dh // 2, activation_bytes=FLOAT * T * Dh),
    }
    after = {
        "take_rows": Cost(f"{T}×{D} → {O}×{D}", activation_bytes=2 * FLOAT * O * D),
        "output_norm": _norm(O, D),
        "head_input": _quantize(O, D),
        "logits": _product(O, D, V, weight_bytes.get("output.weight", embedding)),
    }
    costs = {(name, -1): cost for name, cost in before.items()}
    for layer in range(config.num_layers):
        each = _layer_costs(config, layer, weight_bytes, work, element_bytes)
        costs |= {(name, layer): cost for name, cost in each.items()}
    return costs | {(name, -1): cost for name, cost in after.items()}
