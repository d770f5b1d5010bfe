"""The operations of the forward, compiled by Numba: the table that ``model.forward`` is written over.

In: a team's member, arrays and records. Out: arrays, written in place. Each operation is collective: every thread of
the team calls it with the same arguments, takes work items, and leaves by a barrier. Each output element has one fixed
order of floating-point operations, which depends neither on the number of rows, nor on the threads, nor on how the
work was split.
"""

from cutaway.ops.cpu.activation import activate
from cutaway.ops.cpu.attention import attention
from cutaway.ops.cpu.embedding import add_positions, embed
from cutaway.ops.cpu.kv_write import kv_write
from cutaway.ops.cpu.matmul import matmul
from cutaway.ops.cpu.norm import head_norm, norm
from cutaway.ops.cpu.quantize import quantize_rows
from cutaway.ops.cpu.rope import rope, rope_angles
from cutaway.ops.cpu.rows import add_rows, take_rows
from cutaway.ops.cpu.softcap import softcap
from cutaway.ops.cpu.tap import tap

__all__ = [
    "activate",
    "add_positions",
    "add_rows",
    "attention",
    "embed",
    "head_norm",
    "kv_write",
    "matmul",
    "norm",
    "quantize_rows",
    "rope",
    "rope_angles",
    "softcap",
    "take_rows",
    "tap",
]
