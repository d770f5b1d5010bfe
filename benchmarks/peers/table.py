"""The report for people.

In: the report as plain data. Out: lines of text.
"""

from collections.abc import Iterator
from typing import Any

NAME_WIDTH = 44


def lines_of(report: dict[str, Any]) -> Iterator[str]:
    """All of it."""
    about, summary = report["machine"], report["summary"]
    yield f"{about['cpu']}, {about['cores']} cores, load before {about['load_average_before']:.2f}"
    yield (
        f"{report['model']}, {report['model_bytes'] / 1e6:.1f} MB, threads: {report['threads']}, "
        f"{report['rounds']} interleaved rounds; medians [least, greatest]; tokens a second"
    )
    for key, row in summary["workloads"].items():
        yield ""
        yield report["workloads"][key]["name"]
        yield from _workload(row, report["ours"])
    if report["memory"]:
        yield ""
        yield "peak memory, MB: peak = file + KV + the rest"
        for name, memory in report["memory"].items():
            yield _memory(name, memory)
    if "streaming_bytes_per_second" in summary:
        best, median = (_interval(summary["streaming_bytes_per_second"][key], 1e9, ".1f") for key in ("best", "median"))
        yield ""
        yield f"streaming read in the same rounds, GB/s: best of a round {best}, median of a round {median}"


def _workload(row: dict[str, Any], ours: str) -> Iterator[str]:
    for name, rate in row["tokens_per_second"].items():
        line = f"  {name:{NAME_WIDTH}} {_interval(rate, 1, ',.1f')}"
        if name in row["ratio_to_peer"]:
            line += f"   {ours} / this: {_interval(row['ratio_to_peer'][name], 1, '.2f')}"
        if name == row["best_peer"]:
            line += "  <- best peer"
        elif name == row["best_peer_on_the_same_file"]:
            line += "  <- best peer on the same file"
        yield line
    for name, reason in row["cannot"].items():
        yield f"  {name:{NAME_WIDTH}} not measured: {_one_line(reason)}"
    streaming = row["of_streaming_limit"]
    if streaming:
        reached = _interval({key: 100 * value for key, value in streaming["reached"].items()}, 1, ".1f")
        limit = _interval(streaming["limit_tokens_per_second"], 1, ",.1f")
        size = streaming["bytes_per_step"] / 1e6
        yield f"  streaming limit ({size:.1f} MB a step): {limit}; {ours} reaches {reached} %"


def _memory(name: str, memory: dict[str, Any]) -> str:
    if "cannot" in memory:
        return f"  {name:{NAME_WIDTH}} not measured: {_one_line(memory['cannot'])}"
    peak, file, kv, beyond = (memory[key] / 1e6 for key in ("peak_bytes", "file_bytes", "kv_bytes", "beyond"))
    return (
        f"  {name:{NAME_WIDTH}} {peak:,.1f} = {file:,.1f} + {kv:,.1f} {'+' if beyond >= 0 else '-'} {abs(beyond):,.1f}"
    )


def _interval(values: dict[str, float], unit: float, form: str) -> str:
    low, middle, high = (f"{values[key] / unit:{form}}" for key in ("min", "median", "max"))
    return f"{middle} [{low}, {high}]"


def _one_line(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= 160 else text[:159] + "…"
