"""The shape report of a real file against the file, and against what a runner allocates."""

from pathlib import Path

import numpy as np
import pytest

from cutaway.audit.shape_report import ShapeReport, shape_report
from cutaway.engine.runner import DEFAULT_STEP, ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.formats.gguf import open_gguf


@pytest.fixture(scope="module")
def report(smollm2_path: Path) -> ShapeReport:
    with open_gguf(smollm2_path) as gguf:
        return shape_report(gguf, context=100, threads=2)


def test_weights_are_all_tensors_of_the_file(report: ShapeReport, smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as gguf:
        assert report.total("weights") == sum(tensor.nbytes for tensor in gguf.tensors.values())
        assert sum(line.count for line in report.weights) == len(gguf.tensors)
    assert "output.weight" not in [line.name for line in report.weights]  # tied to the embedding


def test_kv_and_buffers_are_what_a_runner_allocates(report: ShapeReport, smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as gguf, ModelRunner(gguf, threads=2, context=100) as runner:
        assert runner.limits.max_tokens == DEFAULT_STEP
        assert report.total("kv") == runner.kv.nbytes
        assert {line.name: line.value for line in report.dimensions} == dict(runner.dimensions)
        work = runner.workspace
        arrays = {name: array for name, array in work._asdict().items() if isinstance(array, np.ndarray)}
        for nested in ("activation", "scratch"):
            arrays |= {f"{nested}.{name}": array for name, array in getattr(work, nested)._asdict().items()}
        shown = {line.name: (line.shape, line.dtype, line.bytes) for line in report.buffers}
        assert shown == {name: (array.shape, str(array.dtype), array.nbytes) for name, array in arrays.items()}


def test_an_int8_cache_is_shown_with_its_scales(smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as gguf:
        report = shape_report(gguf, context=100, threads=1, kv_dtype="int8")
    assert [(line.name, line.dtype) for line in report.kv] == [
        ("kv.keys", "int8"),
        ("kv.values", "int8"),
        ("kv.key_scales", "float32"),
        ("kv.value_scales", "float32"),
    ]
    assert report.total("kv") == 7 * 16 * 2 * 30 * 3 * (64 + 4)


def test_plain_data_has_the_totals(report: ShapeReport) -> None:
    data = report.as_dict()
    for part in ("weights", "kv", "buffers"):
        assert data["total_bytes"][part] == sum(line["bytes"] for line in data[part])


@pytest.mark.parametrize(
    ("context", "threads", "message"),
    [
        (0, 1, "context is 0; .* 1 to 8192"),
        (8193, 1, "context is 8193; .* 1 to 8192"),
        (16, 0, "threads is 0; it must be 1 to 256"),
        (16, 257, "threads is 257; it must be 1 to 256"),
    ],
)
def test_limits_that_no_runner_takes_are_refused(smollm2_path: Path, context: int, threads: int, message: str) -> None:
    with open_gguf(smollm2_path) as gguf, pytest.raises(InvalidRequestError, match=message):
        shape_report(gguf, context, threads)
