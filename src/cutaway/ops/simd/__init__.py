"""An explicit SIMD vocabulary for Numba: the words that the kernels of ``ops.cpu`` are written in.

A value of type ``Rows(element, m)`` is m vectors held in registers, each of 16 float32, 16 int32 or 64 uint8 lanes.
Every word is generic over m, so that one kernel source serves one row of activations or eight. The width of 16 lanes
is part of the numerical contract: each lowering (AVX-512, AVX2, aarch64) computes the same 16 lanes in the same order,
and so gives the same bits. The words of ``matrices``, which the lowering "amx" has besides, are exact in integers.
"""

from typing import Any, Final

from cutaway.ops.simd.lowering import LOWERING
from cutaway.ops.simd.word import Word

WORDS: Final = {
    "arithmetic": (
        "absolute add add_int and_bytes and_uint bits_as_float bits_as_int div fma high_nibbles "
        "low_nibbles maximum maximum_int minimum mul mul_high_uint mul_int or_bytes power_of_two "
        "replace_above round_even shift_left_bytes shift_right shift_right_bytes sqrt sub "
        "sub_bytes sub_int to_float to_int xor_int "
    ),
    "dot": ("dot_u7 dot_u8 "),
    "lanes": (
        "count_lanes first_lane keep_lanes lane_index lane_max lane_max_int lane_sum lane_sum_int lanes_at_most "
        "splat splat_int splat_uint8 zeros zeros_int "
    ),
    "lookup": ("look_up_bytes splat_16_bytes "),
    "matrices": ("clear_matrix close_matrices load_matrix multiply_matrices open_matrices store_matrix "),
    "memory": (
        "load load_bfloat load_half load_half_scalar load_int load_int8 load_rows load_rows_int "
        "load_scalar load_sized load_uint8 load_uint8_scalar load_uint32_scalar prefetch splat_rows "
        "splat_rows_int splat_rows_int8 store store_int store_int8 store_rows store_scalar "
        "store_scalar_sized store_sized store_uint8 store_uint8_scalar store_uint32_scalar "
    ),
    "processor": (
        "atomic_add atomic_load atomic_store call_entry call_kernel cycles pause set_float_environment sleep_while "
        "wake "
    ),
    "taps": ("call_back clock_tap no_row_tap no_tap "),
}
"""The words, by the module that defines them."""

_PLACE: Final = {name: module for module, names in WORDS.items() for name in names.split()}

__all__ = ["LOWERING", "WORDS", *_PLACE]


def __getattr__(name: str) -> Any:
    """A word that no kernel has used yet."""
    if name not in _PLACE:
        raise AttributeError(f"the vocabulary has no word {name!r}", name=name, obj=None)
    word = globals()[name] = Word(f"{__name__}.{_PLACE[name]}", name)
    return word
