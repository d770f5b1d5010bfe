"""The machine's limits: the probes do the work that they are counted for, and rates are what one gets by hand."""

import dataclasses
import json

import pytest

from cutaway.audit.limits import LEAST_REPEATS, MachineLimits, Rate, huge_page_bytes, measure_limits
from cutaway.errors import InvalidRequestError
from cutaway.ops.cpu.matmul import LEAST_ROWS
from cutaway.ops.cpu.probes import STREAM_STEP
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.ops.simd import LOWERING


def test_a_rate_is_amount_over_time() -> None:
    assert Rate.of(100, [4.0, 1.0, 2.0]) == Rate(best=100.0, median=50.0, worst=25.0, repeats=3)


def test_measured_limits_record_how_they_were_measured() -> None:
    team = ThreadTeam(2)
    size = 1 << 20
    limits = measure_limits(team, stream_bytes=size + 100, probe_seconds=0.001)
    team.close()
    assert (limits.threads, limits.stream_bytes, limits.probe_seconds) == (2, size, 0.001)
    assert (limits.lowering, limits.amx is not None) == (LOWERING, LOWERING == "amx")
    for rate in filter(None, (limits.stream, limits.int8, limits.float32, limits.amx)):
        assert 0 < rate.worst <= rate.median <= rate.best
        assert rate.repeats >= LEAST_REPEATS
    assert limits.huge_page_bytes is None or 0 <= limits.huge_page_bytes <= size
    data = limits.as_dict()
    rates = {name: Rate(**data[name]) for name in ("stream", "int8", "float32", "amx") if data[name]}
    assert MachineLimits(**{**data, **rates}) == limits
    assert json.loads(json.dumps(limits.as_dict())) == dataclasses.asdict(limits)


def test_the_limit_of_products_is_amx_s_from_the_rows_on_that_use_it(
    limits: MachineLimits, amx_limits: MachineLimits
) -> None:
    assert limits.of_products(4096) == ("int8", limits.int8)
    assert amx_limits.of_products(LEAST_ROWS - 1) == ("int8", amx_limits.int8)
    assert amx_limits.of_products(LEAST_ROWS) == ("amx", amx_limits.amx)


def test_less_than_one_iteration_of_each_thread_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=f"stream_bytes is 255; 1 threads need {STREAM_STEP}"):
        measure_limits(ThreadTeam(1), stream_bytes=255)


SMAPS = """\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me ac sd
7f0000400000-7f0000500000 r--p 00000000 fe:01 1234 /usr/lib/lib-a-b.so
Size:               1024 kB
AnonHugePages:         0 kB
"""


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        (0x7F0000000000, 4 << 20, 2 << 20),
        (0x7F00003FFFFF, 1 << 20, 1 << 20),  # a neighbour's huge pages are not ours
        (0x7F0000400000, 1 << 20, 0),
        (0x7F0000500000, 1 << 20, None),
    ],
)
def test_huge_pages_are_those_of_the_mapping(address: int, size: int, expected: int | None) -> None:
    assert huge_page_bytes(address, size, SMAPS) == expected


def test_a_system_that_keeps_no_account_says_nothing() -> None:
    assert huge_page_bytes(0x7F0000000000, 1, "") is None
