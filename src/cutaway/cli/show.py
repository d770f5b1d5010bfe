"""``cutaway show``: what a model's file says, and what it would take to run it.

In: a model and a context; only the head of the file is read. Out: metadata, tensors by type, the tokens that end an
answer, what the tokenizer had to assume, memory, licence, chat template and the tools that it takes; or JSON.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cutaway.cli.console import FetchProgress, error_console, escaped, quantity
from cutaway.cli.models import Json, ModelName
from cutaway.errors import ModelFileError, UnsupportedMachineError
from cutaway.hub import resolve

if TYPE_CHECKING:
    from cutaway.formats.gguf_metadata import MetadataValue
    from cutaway.formats.source import ModelSource
    from cutaway.formats.tensor import Tensor
    from cutaway.hub.catalogue import CatalogueEntry, HubAlias
    from cutaway.tokenizer.answers.formats import AnswerFormat

LINE = 100  # characters of a value
MOST_ENTRIES = 12  # of an array that is shown, and not counted
TEMPLATE = "tokenizer.chat_template"


def show(
    model: ModelName,
    context: Annotated[
        int | None, typer.Option(help="Positions to plan the memory for; default: the model's, up to 8,192.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a model's file says: metadata, tensors by type, licence, chat template; and what memory it takes."""
    from cutaway.formats.open_model import open_model

    with FetchProgress(error_console()) as progress:
        local = resolve(model, progress)
    with open_model(local.path) as source:
        ends_answer, chat_template = _chat(source)
        notes, answers = _tokenizer(source)
        report = {
            "path": str(local.path),
            "licence": local.entry.licence if local.entry else source.metadata.get("general.license"),
            "format": source.format,
            "metadata": {key: _short(value) for key, value in source.metadata.items()},
            "tensors": _tensors(source),
            "ends_answer": ends_answer,
            "tokenizer_notes": notes,
            "tools": None if answers is None else {"shown": answers.takes_tools, "calls": answers.calls},
            "sampling": _sampling(source, local.entry),
            "reasoning": None if answers is None else answers.reasoning,
            "memory": _memory(source, context),
            "chat_template": chat_template,
        }
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print(report)


def _tensors(source: "ModelSource") -> dict[str, dict[str, int]]:
    """Block type → how many tensors have it, and their bytes, in the files and once loaded (0: not read, or this
    machine has no kernels that would say).
    """
    try:  # here: it loads the compiler's library
        from cutaway.model.loader import memory_bytes
    except UnsupportedMachineError:

        def memory_bytes(tensor: "Tensor") -> int:
            return 0

    count, size, loaded = Counter[str](), Counter[str](), Counter[str]()
    for tensor in source.tensors.values():
        count[tensor.block_type.name] += 1
        size[tensor.block_type.name] += tensor.nbytes
        loaded[tensor.block_type.name] += memory_bytes(tensor)
    return {name: {"count": count[name], "bytes": size[name], "bytes_loaded": loaded[name]} for name in count}


def _chat(source: "ModelSource") -> tuple[dict[str, int] | None, str | None]:
    """The tokens that end an answer, None where the vocabulary can't be read; and the chat template."""
    from cutaway.tokenizer import open_tokenizer
    from cutaway.tokenizer.vocabulary import read_vocabulary

    if source.path.is_dir():
        try:
            tokenizer = open_tokenizer(source)
        except ModelFileError:
            return None, None
        return {tokenizer.piece(token_id): token_id for token_id in sorted(tokenizer.eos_ids)}, tokenizer.chat_template
    template = source.metadata.get(TEMPLATE)
    try:
        vocabulary = read_vocabulary(source.metadata)
    except ModelFileError:
        ends = None
    else:
        ends = {vocabulary.pieces[token_id]: token_id for token_id in sorted(vocabulary.eos_ids)}
    return ends, template if isinstance(template, str) else None


def _tokenizer(source: "ModelSource") -> "tuple[list[str], AnswerFormat | None]":
    """What the tokenizer had to assume, or why there is none; how the model writes calls and thoughts."""
    from cutaway.tokenizer import open_tokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same sentences
        try:
            tokenizer = open_tokenizer(source)
        except ModelFileError as error:
            return [f"this tokenizer can't be read: {error}"], None
        return list(tokenizer.notes), tokenizer.answer_format


def _sampling(source: "ModelSource", entry: "CatalogueEntry | HubAlias | None") -> dict[str, Any]:
    """What the model's authors advise, or why it can't be used."""
    from cutaway.engine.default_params import default_params

    try:
        return dict(default_params(source, entry, "auto"))
    except ModelFileError as error:
        return {"refused": str(error)}


def _memory(source: "ModelSource", context: int | None) -> dict[str, Any]:
    """Bytes of weights, KV cache and buffers at a context, or why the model can't run here."""
    try:
        from cutaway.audit.shape_report import shape_report  # here: it loads the compiler's library

        report = shape_report(source, context)
    except (ModelFileError, UnsupportedMachineError) as error:
        return {"refused": str(error)}
    sizes = {line.name: line.value for line in report.dimensions}
    parts = {part: report.total(part) for part in ("weights", "kv", "buffers")}
    return {"context": sizes["C"], **parts, "total": sum(parts.values())}


def _print(report: dict[str, Any]) -> None:
    """The report for people. Texts of the file are foreign: they are shown on one line, without markup."""
    console = Console(highlight=False, emoji=False)
    console.print(f"{report['path']} ({report['format']})", soft_wrap=True, markup=False)
    console.print(_metadata_table(report), markup=False)
    console.print(_tensors_table(report))
    for title, text in _facts(report):
        console.print(f" {title}: {text}", soft_wrap=True, markup=False)
    if report["chat_template"] is not None:
        for text in str(report["chat_template"]).split("\n"):
            console.print(escaped(text), soft_wrap=True, markup=False)


def _metadata_table(report: Mapping[str, Any]) -> Table:
    """Key and value, each on one line; the chat template is told in full below."""
    table = Table("metadata", "value", box=None)
    for key, value in report["metadata"].items():
        in_full_below = key == TEMPLATE and value == report["chat_template"]
        table.add_row(_one_line(key), "in full below" if in_full_below else _one_line(value))
    return table


def _tensors_table(report: Mapping[str, Any]) -> Table:
    """How many tensors of each type, and what they take in the file and in memory."""
    table = Table("tensors of type", "count", "bytes in the file", "bytes loaded", box=None)
    for name, total in report["tensors"].items():
        in_memory = _bytes(total["bytes_loaded"]) if total["bytes_loaded"] else "not read"
        table.add_row(name, str(total["count"]), _bytes(total["bytes"]), in_memory)
    return table


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is to be known beside the tables: title, text."""
    yield "licence", _one_line(report["licence"] or "the file names none")
    ends = report["ends_answer"]
    if ends is not None:
        told = ", ".join(f"{token_id} {escaped(piece)}" for piece, token_id in ends.items())
        yield "ends an answer", told or "nothing"
    for note in report["tokenizer_notes"]:
        yield "tokenizer", escaped(note)
    if report["tools"] is not None:
        yield "tools", _tools(**report["tools"])
    if report["reasoning"] is not None:
        yield "reasoning", " … ".join(report["reasoning"])
    advised = report["sampling"]
    if "refused" in advised:
        yield "sampling", advised["refused"]
    elif advised:
        values = [f"{name.replace('_', '-')} {value:g}" for name, value in advised.items()]
        yield "sampling", f"{', '.join(values)}, as its authors advise"
    yield _memory_fact(report["memory"])
    if report["chat_template"] is None:
        yield "chat template", "none: probably a base model; run it with --raw, or with a --chat-template"
    else:
        yield "chat template", ""


def _memory_fact(memory: Mapping[str, Any]) -> tuple[str, str]:
    """What it takes to run the model, or why it can't be run."""
    if "refused" in memory:
        return "memory", f"can't be run: {memory['refused']}"
    parts = f"weights {_bytes(memory['weights'])}, KV cache {_bytes(memory['kv'])}"
    total = f"{memory['total']:,} bytes ({quantity(memory['total'], 'B')})"
    return f"memory at a context of {memory['context']:,}", f"{total}: {parts}, buffers {_bytes(memory['buffers'])}"


def _tools(shown: bool, calls: str | None) -> str:
    if not shown:
        return "none: the chat template has no place for them"
    return "calls of a format that is not known here" if calls is None else f"calls in the format {calls}"


def _bytes(number: int) -> str:
    """``30,081,024 (30.1 MB)``."""
    return f"{number:,} ({quantity(number, 'B') or '0 B'})"


def _short(value: "MetadataValue") -> Any:
    """A metadata value for JSON: long arrays as their length."""
    from cutaway.formats.gguf_metadata import StringArray

    if isinstance(value, str | int | float | bool):
        return value
    if len(value) > MOST_ENTRIES:
        return f"[{len(value)} entries]"
    if isinstance(value, StringArray):
        return [raw.decode("utf-8", errors="replace") for raw in value.raw_list()]
    return [_short(each) for each in value] if isinstance(value, tuple) else value.tolist()


def _one_line(value: Any) -> str:
    """The value's first 100 characters; what a terminal would obey becomes an escape."""
    shown = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
    text = escaped(shown[: LINE + 1])
    return text if len(text) <= LINE else text[: LINE - 3] + "…"
