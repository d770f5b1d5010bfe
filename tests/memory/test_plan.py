"""The memory plan in numbers worked out by hand, and sizes as people write them."""

from typing import Any

import numpy as np
import pytest

from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.memory.byte_size import parse_bytes
from cutaway.memory.plan import MemoryPlan

PLAN = MemoryPlan(runtime=1000, weights=500, workspace=100, position=3, page_length=16, pages=10)


def test_the_sums() -> None:
    assert (PLAN.fixed, PLAN.kv, PLAN.total, PLAN.tokens) == (1600, 480, 2080, 160)
    assert PLAN.as_dict()["total"] == 2080


@pytest.mark.parametrize(
    ("limit", "pages"), [(0, 0), (1600, 0), (1647, 0), (1648, 1), (2079, 9), (2080, 10), (2128, 11)]
)
def test_pages_within_a_limit(limit: int, pages: int) -> None:
    assert PLAN.pages_within(limit) == pages


def test_the_pool_takes_what_is_left_and_can_be_used() -> None:
    assert PLAN.within(2000, context=50, sequences=9).pages == 8
    assert PLAN.within(10**6, context=50, sequences=3).pages == 12  # 4 pages each
    assert PLAN.within(1600 + 4 * 48, context=50, sequences=3).pages == 4


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [
        (1600 + 4 * 48 - 1, r"Lower the context \(max_model_len\) to 48 or less, or give it more memory"),
        (1600, "Give it more memory, or"),
    ],
)
def test_a_context_that_does_not_fit_is_refused_with_the_numbers(limit: int, remedy: str) -> None:
    with pytest.raises(CapacityError, match=f"limit is {limit:,} bytes; runtime 1,000, .*take 1,792.* {remedy}"):
        PLAN.within(limit, context=50, sequences=3)


def test_pages_that_no_sequence_has_are_left_out() -> None:
    assert PLAN.within(1600 + 6 * 48, context=50, sequences=3, spare=2).pages == 4
    assert PLAN.within(10**6, context=50, sequences=3, spare=2).pages == 12
    for limit in (1, 1600, 1600 + 6 * 48 - 1):  # the limit as it was given, and all that is needed
        with pytest.raises(CapacityError, match=rf"limit is {limit:,} bytes; .* with a page for pads take 1,888\. "):
            PLAN.within(limit, context=50, sequences=3, spare=2)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (1, 1),
        ("1", 1),
        ("2GiB", 2 << 30),
        ("2 gib", 2 << 30),
        ("1.5G", 1_500_000_000),
        ("512M", 512_000_000),
        ("512 MiB", 512 << 20),
        ("3kB", 3000),
        ("0.5k", 500),
        ("1TB", 10**12),
        (" 7 B ", 7),
    ],
)
def test_sizes(given: Any, size: int) -> None:
    assert parse_bytes(given, "memory") == size


@pytest.mark.parametrize(
    "given",
    [
        "",
        "G",
        "2 G iB",
        "-1",
        "1e9",
        "2GiBs",
        "0",
        0,
        -5,
        True,
        1.5,
        None,
        "0.1",
        "2i",
        "٢",
        "9" * 400,
        "1" * 308 + "GiB",
    ],
)
def test_what_is_no_size(given: Any) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"memory is .*; it must be 1 byte at least, such as '2GiB'"
    ) as caught:
        parse_bytes(given, "memory")
    assert caught.value.field == "memory"


def test_an_integer_that_python_does_not_write() -> None:
    with pytest.raises(InvalidRequestError, match="memory is a int that can't be shown; it must be 1 byte"):
        parse_bytes(-(10**5000), "memory")


def test_integers_of_numpy_are_sizes() -> None:
    size = parse_bytes(np.int64(2 << 30), "memory")
    assert (size, type(size)) == (2 << 30, int)
    with pytest.raises(InvalidRequestError, match=r"memory is 2147483648\.0; .* or the integer 2147483648"):
        parse_bytes(float(2 << 30), "memory")
