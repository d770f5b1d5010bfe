"""The operations of the forward, compiled by Numba: the table that ``model.forward`` is written over.

In: a team's member, arrays and records. Out: arrays, written in place. Each operation is collective: every thread of
the team calls it with the same arguments, takes work items, and leaves by a barrier. Each output element has one fixed
order of floating-point operations, which depends neither on the number of rows, nor on the threads, nor on how the
work was split.
"""

from cutaway.ops.cpu.activation import silu_mul
from cutaway.ops.cpu.attention import attention
from cutaway.ops.cpu.embedding import embed
from cutaway.ops.cpu.kv_write import kv_write
from cutaway.ops.cpu.matmul import matmul
from cutaway.ops.cpu.norm import rms_norm
from cutaway.ops.cpu.quantize import quantize_rows
from cutaway.ops.cpu.rope import rope, rope_angles
from cutaway.ops.cpu.rows import add_rows, take_rows
from cutaway.ops.cpu.tap import tap

__all__ = [
    "add_rows",
    "attention",
    "embed",
    "kv_write",
    "matmul",
    "quantize_rows",
    "rms_norm",
    "rope",
    "rope_angles",
    "silu_mul",
    "take_rows",
    "tap",
]
