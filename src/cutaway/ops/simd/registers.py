"""The registers that the vocabulary computes in: their sizes, and the state that rounding depends on.

In: nothing. Out: constants, the same on every machine but for the floating-point environment, which is one register:
MXCSR on x86, FPCR on aarch64.
"""

from typing import Final

from cutaway.ops.simd.host import MACHINE

LANES: Final = 16  # of a vector of float32 or int32
MATRIX_ROWS: Final = 16  # of a matrix register of sums, or of activations
ROW_BYTES: Final = 64  # of a row of a matrix register, at most
REGISTER_BYTES: Final = MATRIX_ROWS * ROW_BYTES

DEFAULT_FLOAT_ENVIRONMENT: Final = {"x86_64": 0x1F80, "aarch64": 0}[MACHINE]
"""Round to nearest even, denormals kept, all exceptions masked: the environment in which the contract of same bits
holds.
"""
