"""``cutaway pull``, ``ls``, ``rm``: the models on this machine.

In: names. Out: files fetched or removed, and a list of what there is.
"""

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cutaway.cli.console import FetchProgress, error_console, escaped
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.hub import CATALOGUE, HUB_ALIASES, fetched_names, installed, plan_removal, resolve

NAMES_A_MODEL = (
    "A name (smollm2), the path of a .gguf file or of a folder, or a repository on the Hugging Face hub "
    "(owner/repo, owner/repo:Q4_K_M)"
)
ModelName = Annotated[str, typer.Argument(help=f"{NAMES_A_MODEL}.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CONFIG_BYTES = 1 << 20
PIPED_WIDTH = 80  # columns where the output is no terminal
LEAST_WIDTH = 40  # columns of what a name means, however narrow the terminal is
FILES_SHOWN = 5


def pull(model: Annotated[str | None, typer.Argument(help="A name; without it, the names are listed.")] = None) -> None:
    """Fetch a model into the cache; of a repository on the hub, what it has now."""
    if model is None:
        _list_names()
        return
    with FetchProgress(error_console()) as progress:
        local = resolve(model, progress, refresh=True)
    print(local.path)


def _list_names() -> None:
    """The names that are known, each with its size, whether it is on this machine, and what and whence it is."""
    here = fetched_names()
    rows: list[tuple[str, float, str, str]] = [
        *(
            (each.alias, each.size, f"{each.description} ({each.licence})", f"PyPI: {each.source.requirement}")
            for each in dict.fromkeys(CATALOGUE.values())
        ),
        *(
            (each.alias, each.size, f"{each.description} ({each.licence})", f"hub: {each.repository}")
            for each in HUB_ALIASES.values()
        ),
    ]
    console = Console()
    width = console.width if console.is_terminal else PIPED_WIDTH
    longest = max(len(alias) for alias, _, _, _ in rows)
    for alias, size, what, whence in rows:
        columns = f"{alias:<{longest}}  {size / 1e6:>5.0f} MB  {'fetched' if alias in here else '':<7}  "
        space = max(width - len(columns), LEAST_WIDTH)
        first, *others = textwrap.wrap(what, space, break_long_words=False, break_on_hyphens=False)
        print(columns + first, *(" " * len(columns) + each for each in (*others, whence)), sep="\n")
    print("or any repository with a model on the Hugging Face hub: owner/repo:Q4_K_M")


def ls(as_json: Json = False) -> None:
    """List the models in Cutaway's cache and in the Hugging Face hub's: size, family, type of weights, last use."""
    models = [(each, *_kind(each.path)) for each in installed()]
    if as_json:
        rows = [
            {
                "name": each.name,
                "bytes": each.bytes,
                "family": family,
                "type": weights,
                "last_used": datetime.fromtimestamp(each.last_used).astimezone().isoformat(timespec="seconds"),
                "path": str(each.path),
            }
            for each, family, weights in models
        ]
        print(json.dumps(rows, indent=2))
        return
    if not models:
        error_console().print("no models yet; `cutaway pull smollm2` fetches one.")
        return
    titles = ("name", "size", "family", "type", "last used", "path")
    _print_columns(
        [titles]
        + [
            (
                escaped(each.name),
                f"{each.bytes / 1e6:.0f} MB",
                escaped(family or "?"),
                escaped(weights or "?"),
                datetime.fromtimestamp(each.last_used).strftime("%Y-%m-%d"),
                escaped(str(each.path)),
            )
            for each, family, weights in models
        ]
    )


def rm(
    model: Annotated[
        str, typer.Argument(help="A name of the catalogue, or of the hub: owner/repo, or owner/repo:Q8_0.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before files of the hub's cache go.")] = False,
) -> None:
    """Remove a model from its cache. Other programs share the hub's, so that this asks first."""
    plan = plan_removal(model)
    if plan.shared_with is not None and plan.files and not yes:
        shown = ", ".join(plan.files[:FILES_SHOWN])
        more = f" and {len(plan.files) - FILES_SHOWN} more" if len(plan.files) > FILES_SHOWN else ""
        what = f"{shown}{more}, {plan.bytes / 1e6:.0f} MB, in a cache that other programs share"
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidRequestError(f"{model} is {what}. To remove it, add --yes.", "yes")
        if not typer.confirm(f"Remove {what}?", err=True):
            raise typer.Exit(1)
    freed = plan.carry_out()
    print(f"{freed / 1e6:.0f} MB freed" if freed or plan.files else f"{model} was not in the cache")


def _kind(path: Path) -> tuple[str | None, str | None]:
    """(family, the type of most weights) as the model's own files say; None where they say nothing that can be read."""
    # Imported here: the other commands shall not wait for NumPy to load.
    from cutaway.formats.open_model import open_model

    if path.is_dir():
        try:
            with (path / "config.json").open("rb") as file:
                config = json.loads(file.read(CONFIG_BYTES))
            family, weights = config.get("model_type"), config.get("dtype", config.get("torch_dtype"))
        except (OSError, ValueError, AttributeError, RecursionError):
            return None, None
        return (family if isinstance(family, str) else None), (weights if isinstance(weights, str) else None)
    try:
        with open_model(path) as source:
            sizes = Counter[str]()
            for tensor in source.tensors.values():
                sizes[tensor.block_type.name] += tensor.nbytes
            return source.get("general.architecture", str, None), max(sizes, key=sizes.__getitem__, default=None)
    except CutawayError:
        return None, None


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Two spaces between columns; the last is not padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        print("  ".join((*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1])))
