"""Write docs/shapes.md, the shape table with SmolLM2's numbers: ``python docs/make_shapes.py``.

In: ``model/shapes.py`` and the head of the model's file, which is fetched if it is missing. Out: the page; a test fails
when it is not current.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cutaway.audit.shape_report import ShapeLine, ShapeReport, shape_report
from cutaway.cli.console import quantity
from cutaway.engine.runner import DEFAULT_STEP
from cutaway.formats.gguf import open_gguf
from cutaway.hub import resolve
from cutaway.model.config import read_config
from cutaway.model.shapes import LAYER_TAPS, STEP_TAPS, evaluate, taps_of

PAGE = Path(__file__).parent / "shapes.md"
MODEL = "smollm2"
CONTEXT, THREADS = 8192, 2
TITLES = {
    "weights": ("Weights", "In the file's block formats; a layer's weights are counted together."),
    "kv": ("KV cache", "A pool of sub-tiles of 16 positions; see [kv-cache](kv-cache.md)."),
    "buffers": ("Buffers", "The workspace, allocated once; nothing is allocated in a step."),
}


def _shape(entries: Sequence[object]) -> str:
    return f"`[{', '.join(map(str, entries))}]`"


def _lines(part: str, lines: Sequence[ShapeLine], total: int) -> list[str]:
    title, introduction = TITLES[part]
    return [
        f"## {title}",
        "",
        introduction,
        "",
        "| name | count | symbolic | actual | type | bytes | meaning |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| `{each.name}` | {each.count} | {_shape(each.symbolic)} | {_shape(each.shape)} | {each.dtype} "
            f"| {quantity(each.bytes, 'B')} | {each.meaning} |"
            for each in lines
        ),
        f"| all | | | | | {quantity(total, 'B')} | {total:,} bytes |",
        "",
    ]


def without_matrix_registers(report: ShapeReport) -> ShapeReport:
    """As the report is on a machine without them, so that the page is the same wherever it is made."""
    sizes = {line.name: 0 if line.name == "W" else line.value for line in report.dimensions}
    return replace(
        report,
        dimensions=tuple(replace(line, value=sizes[line.name]) for line in report.dimensions),
        buffers=tuple(
            replace(line, shape=(*line.shape[:-1], 0), bytes=0) if line.symbolic[-1] == "W" else line
            for line in report.buffers
        ),
    )


def page() -> str:
    """The whole page."""
    with open_gguf(resolve(MODEL).path) as gguf:
        report, present = shape_report(gguf, CONTEXT, THREADS), taps_of(read_config(gguf))
    report = without_matrix_registers(report)
    sizes = {line.name: line.value for line in report.dimensions}
    text = [
        "# Shapes",
        "",
        "<!-- Made by docs/make_shapes.py from src/cutaway/model/shapes.py: edit that. -->",
        "",
        f"Every dimension, weight and buffer of SmolLM2-135M-Instruct, for {CONTEXT:,} positions and {THREADS} "
        "threads, on a machine without matrix registers. The table is code, "
        "[shapes.py](../src/cutaway/model/shapes.py): the loader checks a file against it, the workspace is allocated "
        "from it, and the open run checks against it what each operation wrote. `cutaway shapes MODEL` prints it for "
        "any model.",
        "",
        "## Dimensions",
        "",
        "| name | value | meaning |",
        "|---|---|---|",
        *(f"| `{each.name}` | {each.value:,} | {each.meaning} |" for each in report.dimensions),
        "",
    ]
    for part in TITLES:
        text += _lines(part, getattr(report, part), report.total(part))
    text += [
        "## What each operation shows",
        "",
        f"The taps of the [forward](../src/cutaway/model/forward.py) in their order, with the shapes of a step of "
        f"{DEFAULT_STEP} tokens and one row of logits; those of operations that this model lacks do nothing and are "
        "left out. A quantised input (`…_input`) is shown as the whole buffer.",
        "",
        "| tap | times | symbolic | actual |",
        "|---|---|---|---|",
    ]
    before = ("embed", "add_positions", "rope_angles")
    order = [*before, *LAYER_TAPS, *(name for name in STEP_TAPS if name not in before)]
    for name in (each for each in order if each in present):
        shape = LAYER_TAPS.get(name) or STEP_TAPS[name]
        times = f"{sizes['L']}, once a layer" if name in LAYER_TAPS else "1"
        text.append(f"| `{name}` | {times} | {_shape(shape)} | {_shape([evaluate(each, sizes) for each in shape])} |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
