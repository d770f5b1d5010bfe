"""The shape table filled in for one file: what its weights, KV cache and buffers are, and what they take.

In: a model source, whose tensors' data is not read; a context, a number of threads. Out: a ``ShapeReport``; its totals
are what a runner with these limits has in memory.
"""

from dataclasses import asdict, dataclass
from typing import Any

from cutaway.audit.workloads import check_length
from cutaway.engine.runner import DEFAULT_CONTEXT, DEFAULT_STEP
from cutaway.formats.source import ModelSource
from cutaway.memory.kv_cache import kv_format
from cutaway.memory.kv_setting import PAGE_LENGTH
from cutaway.model.config import read_config
from cutaway.model.loader import check_tensors, memory_bytes
from cutaway.model.shapes import BUFFERS, DIMENSIONS, Limits, Row, dimensions, kv_rows, weights_of
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.ops.cpu.processors import default_threads
from cutaway.ops.cpu.threads import check_threads


@dataclass(frozen=True)
class DimensionLine:
    """A named dimension."""

    name: str
    value: int
    meaning: str


@dataclass(frozen=True)
class ShapeLine:
    """A weight (of all layers together) or a buffer."""

    name: str
    count: int  # layers that have one, or 1
    symbolic: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    bytes: int  # all of them
    meaning: str


@dataclass(frozen=True)
class ShapeReport:
    """Everything that has a shape."""

    model: str
    dimensions: tuple[DimensionLine, ...]
    weights: tuple[ShapeLine, ...]
    kv: tuple[ShapeLine, ...]
    buffers: tuple[ShapeLine, ...]

    def total(self, part: str) -> int:
        """Bytes of "weights", "kv" or "buffers"."""
        return sum(line.bytes for line in getattr(self, part))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with totals."""
        return {**asdict(self), "total_bytes": {part: self.total(part) for part in ("weights", "kv", "buffers")}}


def shape_report(
    source: ModelSource, context: int | None = None, threads: int | None = None, kv_dtype: str = "f16"
) -> ShapeReport:
    """The report for a runner with one context and one row of logits. Raises what loading the model would raise."""
    config = read_config(source)
    check_tensors(source, config)
    positions = min(config.context_length, DEFAULT_CONTEXT) if context is None else context
    check_length("context", positions, config)
    members = default_threads() if threads is None else threads
    check_threads(members)
    pages = -(-positions // PAGE_LENGTH)
    sizes = dimensions(config, Limits(DEFAULT_STEP, 1, members, positions, pages * PAGE_LENGTH // SUBTILE))

    def weight(row: Row) -> ShapeLine | None:
        layers = range(config.num_layers) if "{l}" in row.name else range(1)
        tensors = [source.tensors[name] for name in (row.name.format(l=l) for l in layers) if name in source.tensors]
        if not tensors:
            return None  # a tied head
        types = [tensor.block_type.name for tensor in tensors]
        shown = [name if len(set(types)) == 1 else f"{types.count(name)}×{name}" for name in dict.fromkeys(types)]
        size = sum(map(memory_bytes, tensors))
        return ShapeLine(row.name, len(tensors), row.shape, row.size(sizes), ", ".join(shown), size, row.meaning)

    def buffer(row: Row) -> ShapeLine:
        return ShapeLine(row.name, 1, row.shape, row.size(sizes), row.dtype, row.nbytes(sizes), row.meaning)

    return ShapeReport(
        model=config.name,
        dimensions=tuple(DimensionLine(name, sizes[name], meaning) for name, meaning in DIMENSIONS.items()),
        weights=tuple(line for line in map(weight, weights_of(config)) if line is not None),
        kv=tuple(buffer(row) for row in kv_rows(kv_format(kv_dtype))),
        buffers=tuple(buffer(row) for row in BUFFERS),
    )
