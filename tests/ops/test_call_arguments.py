"""What is passed to compiled code: told apart as Numba tells it apart, and found by the compiled function as it was."""

import copy
import gc
import pickle
import struct
import weakref
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.ops.arguments import Argument, kept, make_argument
from cutaway.ops.kernel_cache import Compiled, jit, root_jit

RECORD = np.dtype([("address", np.int64), ("scale", np.float32), ("kind", np.int32)])
ALIGNED = np.dtype([("small", np.int8), ("large", np.float64)], align=True)


class Pair(NamedTuple):
    left: Any
    right: Any


class Couple(NamedTuple):
    left: Any
    right: Any


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


VALUES: list[Any] = [
    7,
    -(2**63),
    7.0,
    np.float64(7),
    True,
    np.True_,
    np.float32(7),
    np.int32(-7),
    np.int64(7),
    np.uint8(7),
    np.zeros(3, np.float32),
    np.zeros(0, np.float32),
    np.zeros((3, 1), np.float32),
    np.zeros((2, 3, 5), np.float32),
    np.zeros((2, 3), np.float32, order="F"),
    np.zeros((4, 6), np.float32)[::2, ::3],
    np.zeros(3, np.float64),
    np.zeros(3, np.float16),
    np.zeros(3, np.int8),
    np.zeros(3, bool),
    read_only(np.zeros(3, np.float32)),
    np.zeros(3, RECORD),
    np.zeros(3, ALIGNED),
    np.zeros((), RECORD)[()],
    np.zeros((), ALIGNED)[()],
    np.frombuffer(bytearray(13), np.uint8)[1:].view(np.int32),
    (1, 2),
    (1, 2, 3),
    (1, 2.0),
    ((1, 2), np.zeros(3, np.int32)),
    Pair(1, 2),
    Pair(1, 2.0),
    Couple(1, 2),
    Pair(Pair(1, 2), np.zeros((2, 2), np.int32)),
]


def test_types_differ_where_numba_s_differ() -> None:
    """By Numba's own word, for each pair of values."""
    for one in VALUES:
        for other in VALUES:
            same = numba.typeof(one) == numba.typeof(other)
            assert (make_argument(one).type == make_argument(other).type) == same, (one, other)


WRONG: list[Any] = ["text", None, [1, 2], {1: 2}, 1j, (1, "text"), object()]
WRONG += [np.complex64(1j), np.complex128(1j), np.longdouble(1), np.str_("text"), np.datetime64("2020")]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_compiled_code_can_t_take_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="compiled code takes numbers, arrays, records and tuples, not"):
        make_argument(wrong)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_an_integer_has_64_bits(number: int) -> None:
    with pytest.raises(OverflowError, match="does not fit into 64 bits"):
        make_argument(number)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_numbers_in_the_other_byte_order_are_refused(dtype: str) -> None:
    """They would be taken for the processor's own: their types have the same name."""
    own = np.arange(3, dtype=dtype)
    assert make_argument(own).words
    with pytest.raises(TypeError, match="in the processor's own byte order"):
        make_argument(own.astype(own.dtype.newbyteorder()))


def test_what_is_made_ready_is_passed_as_it_is() -> None:
    made = make_argument((1, np.zeros(3)))
    assert make_argument(made) is made
    assert isinstance(made, Argument)


@jit
def everything(pair: Any, matrix: Any, record: Any, flag: bool, single: Any, small: Any, out: Any) -> Any:
    """A result of each kind; what no result can show is written to ``out``."""
    out[0] = pair.right[1]
    out[1] = matrix[1, 2]
    out[2] = matrix.shape[0] * 100 + matrix.shape[1]
    out[3] = record.scale
    out[4] = record["kind"]
    out[5] = small
    return pair.left, single, 2.5 * single, not flag


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=2),
    st.booleans(),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-128, 127),
)
def test_the_compiled_function_finds_what_was_passed(
    left: int, pair: list[int], flag: bool, single: float, small: int
) -> None:
    matrix = np.arange(35, dtype=np.float32).reshape(5, 7)[::2, 1::2]
    record = np.array((left, single, -3), RECORD)[()]
    out = np.zeros(6)
    result = everything(
        Pair(left, np.array(pair, np.int32)), matrix, record, flag, np.float32(single), np.int8(small), out
    )
    assert result == (left, single, 2.5 * single, not flag)
    assert out.tolist() == [pair[1], 14 + 5, 303, single, -3, small]


def test_a_record_s_bytes_outlive_the_call_that_made_them_ready() -> None:
    """The record of the argument is a scalar whose array is gone."""
    out = np.zeros(6)
    made = [make_argument(np.array((1, 2.5, n), RECORD)[()]) for n in range(50)]
    for n, record in enumerate(made):
        everything(
            Pair(0, np.zeros(2, np.int32)),
            np.zeros((3, 3), np.float32)[::2, ::2],
            record,
            True,
            np.float32(1),
            np.int8(0),
            out,
        )
        assert out[3:5].tolist() == [2.5, n]


@kept
class Pool(NamedTuple):
    """Made ready once."""

    numbers: Any
    count: int


def test_a_kept_tuple_is_made_ready_once() -> None:
    pool = Pool(np.arange(3.0), 7)
    assert make_argument(pool).words is make_argument(pool).words
    assert make_argument(pool)[:2] == make_argument(Pool(pool.numbers, 7))[:2]
    other = pool._replace(count=8)
    assert make_argument(other).words != make_argument(pool).words
    assert isinstance(other, Pool)
    assert Pool.__doc__ == "Made ready once."
    assert numba.typeof(pool) == numba.typeof(other)

    @jit
    def last(pool: Any) -> Any:
        return pool.numbers[2] * pool.count

    assert [last(each) for each in (pool, other, pool)] == [14, 16, 14]
    pool.numbers[2] = 10
    assert last(pool) == 70  # what is kept is where the numbers lie


def test_a_kept_tuple_s_arrays_are_freed_with_it() -> None:
    """At once, not when garbage is next collected: a workspace is large."""
    pool = Pool(np.arange(3.0), 7)
    freed = weakref.ref(pool.numbers)
    make_argument(pool)
    gc.disable()
    try:
        del pool
        assert freed() is None
    finally:
        gc.enable()


def test_a_copy_of_a_kept_tuple_has_its_own_addresses() -> None:
    pool = Pool(np.arange(3.0), 7)
    make_argument(pool)
    for other in (copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        address = struct.unpack_from("<q", make_argument(other).words, 32)[0]
        assert address == other.numbers.ctypes.data != pool.numbers.ctypes.data


@pytest.mark.parametrize("array", [np.zeros(0), np.zeros((3, 0)), read_only(np.ones(2)), np.ones((4, 4))[::2, 1::2]])
def test_the_address_is_the_array_s(array: np.ndarray) -> None:
    words = struct.unpack(f"<{5 + 2 * array.ndim}q", make_argument(array).words)
    assert words[2:4] == (array.size, 8)
    assert array.size == 0 or words[4] == array.ctypes.data
    assert words[5:] == (*array.shape, *array.strides)


def test_compiled_once_for_each_kind_of_arguments() -> None:
    @root_jit
    def first(x: Any) -> Any:
        return x[0]

    assert first(np.array([3.5])) == 3.5
    assert first(np.array([4.5, 1])) == 4.5
    assert first(np.array([7, 1])) == 7
    assert isinstance(first, Compiled)
    assert first.signatures == [("float64[1]C",), ("int64[1]C",)]


def test_functions_of_one_name_are_told_apart() -> None:
    """By what they compute with: constants, and numbers that they close over."""

    def adds(n: int) -> Any:
        @jit
        def add(x: int) -> int:
            return x + n

        return add

    def adds_two() -> Any:
        @jit
        def add(x: int) -> int:
            return x + 2

        return add

    def adds_three() -> Any:
        @jit
        def add(x: int) -> int:
            return x + 3

        return add

    functions = [adds(5), adds(6), adds_two(), adds_three()]
    for function in functions:
        function.__qualname__ = function.py_func.__qualname__ = "add"
    assert [function(10) for function in functions] == [15, 16, 12, 13]
    assert len({function.place for function in functions}) == 4


def test_a_result_that_is_no_number_is_refused() -> None:
    @jit
    def same(x: Any) -> Any:
        return x

    with pytest.raises(TypeError, match="a compiled function that Python calls can't return array"):
        same(np.zeros(3))


def test_a_result_without_a_sign_keeps_its_highest_bit() -> None:
    @jit
    def same(x: Any) -> Any:
        return x, x + np.uint64(1)

    assert same(np.uint64(2**63)) == (2**63, 2**63 + 1)


@pytest.mark.parametrize("results", ["()", "(x,)", "np.float16(x)"])
def test_results_that_would_come_back_as_something_else_are_refused(results: str) -> None:
    """A tuple of one would be the number, an empty one None."""
    names: dict[str, Any] = {"np": np, "__name__": __name__}
    exec(f"def function(x):\n    return {results}", names)
    with pytest.raises((TypeError, NotImplementedError)):
        jit(names["function"])(1)
