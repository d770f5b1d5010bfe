"""The feed-forward's activation, and what a gate does with it (Shazeer 2020): silu or GELU, gated or plain.

In: gate and up side by side, or up alone. Out: a(gate) · up, or a(up). Both activations are x / (1 + e^-z): silu with
z = x (SwiGLU), and GELU's approximation by tanh (Hendrycks and Gimpel 2016) with z = √(8/π) · (x + 0.044715 x³), since
(1 + tanh u) / 2 = 1 / (1 + e^-2u).
"""

from typing import Any, Final

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.math import exp
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import add, div, fma, load, mul, splat, store, sub, zeros

CHUNK: Final = 256  # columns of a work item
SILU: Final = 0
GELU: Final = 1
_GELU_SCALE: Final = np.float32(1.5957691216057308)  # √(8/π)
_GELU_CUBE: Final = np.float32(0.044715)
_ONE: Final = np.float32(1.0)


@inner_jit
def _activated(x: Any, kind: int) -> Any:
    """x / (1 + e^-z) for 16 float32."""
    z = x
    if kind == GELU:
        z = mul(mul(splat(_GELU_SCALE), x), fma(splat(_GELU_CUBE), mul(x, x), splat(_ONE)))
    return div(x, add(splat(_ONE), exp(sub(zeros(1), z))))


@jit
def activate(team: Team, gate_up: Floats, kind: int, out: Floats) -> None:
    """out = a(gate) · up for gate_up [T, 2F] with gate before up; out = a(up) for gate_up [T, F]. out: [T, F].

    kind: ``SILU`` or ``GELU``. F is a multiple of 16.
    """
    F = out.shape[1]
    gated = gate_up.shape[1] > F
    chunks = (F + CHUNK - 1) // CHUNK
    for item in share(team, out.shape[0] * chunks):
        t, start = item // chunks, item % chunks * CHUNK
        gates, targets = gate_up.ctypes.data + t * gate_up.strides[0], out.ctypes.data + t * out.strides[0]
        for i in range(4 * start, 4 * min(F, start + CHUNK), 64):
            a = _activated(load(gates + i), kind)
            if gated:
                a = mul(a, load(gates + 4 * F + i))
            store(targets + i, a)
    barrier(team)
