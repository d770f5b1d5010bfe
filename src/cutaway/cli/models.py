"""``cutaway pull``, ``ls``, ``rm``, ``show``: the models on this machine.

In: names. Out: files fetched or removed, and what is known of them.
"""

import json
from collections import Counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cutaway.cli.console import FetchProgress, error_console
from cutaway.hub import CATALOGUE, installed, remove, resolve

ModelName = Annotated[str, typer.Argument(help="A name (smollm2) or the path of a .gguf file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def pull(model: Annotated[str | None, typer.Argument(help="A name; without it, the names are listed.")] = None) -> None:
    """Fetch a model into the cache."""
    if model is None:
        for entry in dict.fromkeys(CATALOGUE.values()):
            print(f"{entry.alias}  {entry.size / 1e6:.0f} MB  {entry.description}  ({entry.licence})")
        return
    with FetchProgress(error_console()) as progress:
        local = resolve(model, progress)
    print(local.path)


def ls(as_json: Json = False) -> None:
    """List the models in the cache."""
    models = [(each.name, each.path.stat().st_size, str(each.path)) for each in installed()]
    if as_json:
        print(json.dumps([{"name": name, "bytes": size, "path": path} for name, size, path in models], indent=2))
        return
    if not models:
        error_console().print("no models yet; `cutaway pull smollm2` fetches one.")
    for name, size, path in models:
        print(f"{name}  {size / 1e6:.0f} MB  {path}")


def rm(model: Annotated[str, typer.Argument(help="A name of the catalogue.")]) -> None:
    """Remove a model from the cache."""
    freed = remove(model)
    print(f"{freed / 1e6:.0f} MB freed" if freed else f"{model} was not in the cache")


def show(model: ModelName, as_json: Json = False) -> None:
    """Show what a model's file says: metadata, tensors by type, chat template."""
    from cutaway.formats.gguf import open_gguf

    with FetchProgress(error_console()) as progress:
        local = resolve(model, progress)
    with open_gguf(local.path) as gguf:
        metadata: dict[str, Any] = {key: _short(value) for key, value in gguf.metadata.items()}
        types = Counter[str]()
        sizes = Counter[str]()
        for tensor in gguf.tensors.values():
            types[tensor.block_type.name] += 1
            sizes[tensor.block_type.name] += tensor.nbytes
        report = {
            "path": str(local.path),
            "licence": local.entry.licence if local.entry else None,
            "version": gguf.version,
            "metadata": metadata,
            "tensors": {name: {"count": count, "bytes": sizes[name]} for name, count in types.items()},
        }
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False, emoji=False)
    console.print(f"{local.path} (GGUF version {gguf.version})", soft_wrap=True, markup=False)
    table = Table("metadata", "value", box=None)
    for key, value in metadata.items():
        table.add_row(_one_line(key), _one_line(value))
    console.print(table, markup=False)
    tensors = Table("tensors of type", "count", "bytes", box=None)
    for name, count in types.items():
        tensors.add_row(name, str(count), f"{sizes[name]:,}")
    console.print(tensors)


def _short(value: Any) -> Any:
    """A metadata value for JSON: long arrays as their length."""
    if isinstance(value, str | int | float | bool):
        return value
    return f"[{len(value)} entries]"


def _one_line(value: Any) -> str:
    """The value's first 100 characters; what a terminal would obey becomes an escape."""
    text = str(value)[:101]
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
    return text if len(text) <= 100 else text[:97] + "…"
