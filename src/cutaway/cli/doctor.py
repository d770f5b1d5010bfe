"""``cutaway doctor``: what this machine and installation are, and how fast they can be.

In: nothing. Out: a report, or JSON. Run it first when something is slow or doesn't start.
"""

import json
from typing import TYPE_CHECKING

import typer

from cutaway.cli.models import Json

if TYPE_CHECKING:
    from cutaway.audit.machine import MachineReport


def doctor(as_json: Json = False) -> None:
    """Show versions, processor, memory, caches, models, and the machine's measured limits."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from rich.text import Text

    from cutaway.audit.limits import measure_limits
    from cutaway.audit.machine import machine_report
    from cutaway.cli.tables import FirstThatFits, limits_table, output_console, plain_table
    from cutaway.ops.cpu.threads import ThreadTeam

    report = machine_report()
    team = ThreadTeam(report.threads)
    try:
        limits = measure_limits(team)
    finally:
        team.close()
    if as_json:
        typer.echo(json.dumps({**report.as_dict(), "limits": limits.as_dict()}, indent=2))
        return
    console = output_console()
    table = plain_table("This machine and installation")
    table.add_column("what", no_wrap=True)
    table.add_column("found")
    for name, found in report_lines(report):
        table.add_row(name, Text(found))
    console.print(table)
    console.print()
    console.print(FirstThatFits(limits_table(limits), limits_table(limits, narrow=True)))


def report_lines(report: "MachineReport") -> list[tuple[str, str]]:
    """The report as pairs of a name and a sentence."""
    from cutaway.cli.console import quantity

    libraries = ", ".join(f"{name} {number}" for name, number in report.libraries.items())
    quota = "no quota" if report.quota is None else f"a quota of {report.quota:g}"
    available = "" if report.memory_available is None else f", {quantity(report.memory_available, 'B')} available"
    better = (
        f"; {report.best_lowering} would need {', '.join(report.lacking)}" if report.lacking else ", the best there is"
    )
    cache = report.cache
    compiled = sum(cache.kernels.values())
    lines = [
        ("cutaway", f"{report.cutaway}, Python {report.python}, {libraries}"),
        ("numerics", f"version {report.numerics_version}"),
        ("system", report.system),
        ("processor", report.processor),
        ("kernels for", f"{report.lowering}{better}"),
        ("processors", f"{report.processors}, {report.affinity} by affinity, {quota}"),
        ("threads by default", str(report.threads)),
        ("memory", f"{quantity(report.memory_bytes, 'B')}{available}"),
        ("cache", f"{cache.path}, {quantity(cache.bytes, 'B') or 'empty'}, {'' if cache.writable else 'not '}writable"),
        (
            "compiled kernels",
            f"{sum(map(bool, cache.kernels.values()))} of {len(cache.kernels)} functions, for {compiled} sets of "
            f"types, stamp {cache.stamp}"
            if compiled
            else f"none yet for stamp {cache.stamp}: they are compiled at first use",
        ),
    ]
    models = [(model.name, f"{model.path}, {quantity(model.bytes, 'B')}") for model in report.models]
    return lines + [
        (f"model {name}", found) for name, found in models or [("–", "none in the cache: cutaway pull smollm2")]
    ]
