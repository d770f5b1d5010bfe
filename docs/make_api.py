"""Write docs/api.md from the docstrings, the request parameters and the command line: ``python docs/make_api.py``.

In: the package that this Python imports. Out: the page; a test fails when it is not current.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import typer

import cutaway
from cutaway import errors
from cutaway.audit.record import record
from cutaway.audit.taps import plan as tap_plan
from cutaway.audit.taps import request as tap_request
from cutaway.cli.main import app
from cutaway.engine import async_engine, conversation, llm, outputs, reference_runner, runner
from cutaway.model import batch
from cutaway.sampling import params
from cutaway.sampling.params_table import parameter_rows
from cutaway.sampling.unsupported import VLLM_VERSION
from cutaway.tokenizer import detokenize, tokenizer

PAGE = Path(__file__).parent / "api.md"
SOURCES = Path(cutaway.__file__).parents[1]
WIDTH = 110
MADE_BY_OTHERS = (llm.Stream, async_engine.AsyncStream, tokenizer.Tokenizer)
"""Classes whose objects a user gets and never makes."""

SECTIONS: tuple[tuple[str, str, tuple[type | Any, ...]], ...] = (
    (
        "Generating",
        "`from cutaway import LLM, Record`",
        (llm.LLM, llm.Stream, record.Record, conversation.Conversation, conversation.TurnCost),
    ),
    (
        "Generating with asyncio",
        "`from cutaway import AsyncEngine`",
        (async_engine.AsyncEngine, async_engine.AsyncStream),
    ),
    (
        "What a request gives back",
        "`RequestOutput` can be imported from `cutaway`; the others come with it.",
        (
            outputs.RequestOutput,
            outputs.CompletionOutput,
            outputs.Delta,
            outputs.Logprob,
            outputs.Statistics,
            outputs.EmbeddingRequestOutput,
            outputs.EmbeddingOutput,
        ),
    ),
    (
        "Tensors of a request",
        "`from cutaway import TapRequest`; [taps](taps.md) has the names.",
        (tap_request.TapRequest, outputs.TappedRows, tap_plan.TapPlan),
    ),
    (
        "Text and ids",
        "`llm.tokenizer` is a `Tokenizer`.",
        (tokenizer.Tokenizer, tokenizer.load_tokenizer, detokenize.StreamingDetokenizer),
    ),
    (
        "One step at a time",
        "`llm.runner` is a `ModelRunner`. A batch is made of pieces; see [life of a request](life-of-a-request.md).",
        (runner.ModelRunner, reference_runner.ReferenceRunner, batch.Piece, batch.make_batch),
    ),
)


class Field(NamedTuple):
    """One field of a dataclass or a named tuple."""

    name: str
    type: str
    default: str
    meaning: str


def markdown(docstring: str) -> str:
    """A docstring as Markdown: its indented parts (``Args:``) become lists, angle brackets stay what they are."""
    lines = []
    for line in inspect.cleandoc(docstring).replace("``", "`").splitlines():
        entry = re.fullmatch(r"    (\w+): (.*)", line)
        if entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif re.fullmatch(r"(Args|Raises|Returns):", line):
            lines += [f"*{line[:-1]}*", ""]
        else:
            lines.append(f"  {line.strip()}" if line.startswith("        ") else line.strip())
    parts = re.split(r"(`[^`]*`)", "\n".join(lines))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def cell(text: str) -> str:
    """Text that may stand in a table."""
    return " ".join(markdown(text).split()).replace("|", "\\|")


def code(text: str) -> str:
    """Inline code that may stand in a table; nothing for nothing."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def source_of(thing: Any) -> str:
    """A link to the file that defines it."""
    path = Path(inspect.getsourcefile(thing) or "").resolve().relative_to(SOURCES.parent.resolve())
    return f"[{path.name}](../{path.as_posix()})"


def definition(thing: Any) -> Any:
    """The syntax tree of a class or a function."""
    return ast.parse(inspect.getsource(thing)).body[0]


def signature(name: str, function: ast.FunctionDef) -> str:
    """The call as it is written, without ``self``, over several lines where it is long."""
    arguments = function.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    written = ast.unparse(function.returns).replace("'", "") if function.returns else "None"
    returns = "" if written == "None" else f" -> {written}"
    pieces = [_spaced(piece) for piece in _split(ast.unparse(arguments))]
    line = f"{name}({', '.join(pieces)}){returns}"
    return (
        line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {piece}," for piece in pieces), f"){returns}"])
    )


def _split(arguments: str) -> list[str]:
    """Arguments apart: at commas outside brackets."""
    pieces, depth = [""], 0
    for character in arguments:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces if piece.strip()]


def _spaced(argument: str) -> str:
    """``x: int=3`` as it is usually written."""
    name, colon, rest = argument.partition(":")
    return f"{name}:{rest.replace('=', ' = ', 1)}" if colon else argument


def fields_of(record: type) -> list[Field]:
    """Fields with their meanings: a string below the field, or a comment behind it."""
    lines = inspect.getsource(record).splitlines()
    body = definition(record).body
    found = []
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        meaning = re.search(r"  # (.*)$", lines[node.lineno - 1])
        text = meaning[1] if meaning else ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = str(following.value.value)
        default = ast.unparse(node.value) if node.value is not None else ""
        default = re.sub(r"^field\(default=(.*?)(, .*)?\)$", r"\1", default)
        found.append(Field(node.target.id, ast.unparse(node.annotation), default, text))
    return found


def is_record(thing: Any) -> bool:
    """Whether a class is no more than its fields and what is derived from them."""
    return is_dataclass(thing) or hasattr(thing, "_fields")


def methods_of(thing: type) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Public methods in the order of the source; the constructor first, unless fields make it."""
    for node in definition(thing).body:
        if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
            yield node.name, node


def class_text(thing: type) -> list[str]:
    """A class: what it is, its fields, its methods."""
    lines = [f"### {thing.__name__}", "", f"In {source_of(thing)}.", "", markdown(thing.__doc__ or ""), ""]
    if is_record(thing):
        lines += ["| field | type | default | |", "|---|---|---|---|"]
        lines += [
            f"| `{each.name}` | {code(each.type)} | {code(each.default)} | {cell(each.meaning)} |"
            for each in fields_of(thing)
        ] + [""]
    for name, node in methods_of(thing):
        is_constructor, documented = name == "__init__", ast.get_docstring(node)
        if not documented or (is_constructor and thing in MADE_BY_OTHERS):
            continue
        if any(ast.unparse(each).endswith("property") for each in node.decorator_list):
            returns = f": `{ast.unparse(node.returns)}`" if node.returns else ""
            lines += [f"#### {thing.__name__}.{name}", "", f"A property{returns}.", ""]
        else:
            title = f"{thing.__name__}: making one" if is_constructor else f"{thing.__name__}.{name}"
            call = signature(thing.__name__ if is_constructor else name, node)
            lines += [f"#### {title}", "", "```py", call, "```", ""]
        lines += [markdown(documented), ""]
    return lines


def function_text(thing: Any) -> list[str]:
    """A function: how it is called, what it does."""
    node = definition(thing)
    return [
        f"### {thing.__name__}",
        "",
        f"In {source_of(thing)}.",
        "",
        "```py",
        signature(thing.__name__, node),
        "```",
        "",
        markdown(thing.__doc__ or ""),
        "",
    ]


def parameters_text() -> list[str]:
    """``SamplingParams``: the fields there are, and those of vLLM's class that are refused."""
    rows = parameter_rows()
    return [
        "## Sampling parameters",
        "",
        f"`from cutaway import SamplingParams`, in {source_of(params.SamplingParams)}.",
        "",
        markdown(params.SamplingParams.__doc__ or ""),
        "",
        f"Every field of vLLM {VLLM_VERSION}'s `SamplingParams` is in one of the two tables. How the steps work "
        "together is told in [sampling](sampling.md).",
        "",
        "| parameter | default | it must be | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{row.name}` | {code(row.default)} | {cell(row.limits)} | {cell(row.meaning)} |"
            for row in rows
            if row.supported
        ),
        "",
        "These are refused, unless they are left at a value that asks for nothing:",
        "",
        "| parameter | it must be | instead |",
        "|---|---|---|",
        *(f"| `{row.name}` | {cell(row.limits)} | {cell(row.meaning)} |" for row in rows if not row.supported),
        "",
    ]


def errors_text(module: ModuleType) -> list[str]:
    """The family of errors, with the exit codes of the command line."""
    family = [
        each for each in vars(module).values() if isinstance(each, type) and issubclass(each, cutaway.CutawayError)
    ]
    return [
        "## Errors",
        "",
        f"All are subclasses of `CutawayError`, in {source_of(errors.CutawayError)}. A message states the value that "
        "was refused, the limit it broke and the remedy. The command line prints it alone and ends with the exit code.",
        "",
        "| error | exit code | raised when |",
        "|---|---|---|",
        *(f"| `{each.__name__}` | {each.exit_code} | {cell(each.__doc__ or '')} |" for each in family),
        "",
    ]


def commands_text() -> list[str]:
    """The command line: each command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    lines = [
        "## Command line",
        "",
        "`cutaway COMMAND --help` prints the same. MODEL is a name (`smollm2`) or the path of a GGUF file.",
        "",
    ]
    for name, command in group.commands.items():
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        usage = " ".join(each.name.upper() if each.required else f"[{each.name.upper()}]" for each in arguments)
        lines += [
            f"### cutaway {name}",
            "",
            f"`{' '.join(filter(None, ['cutaway', name, usage]))}`",
            "",
            markdown(command.help or ""),
            "",
        ]
        rows = [each for each in command.params if each.name != "help"]
        if rows:
            lines += ["| | default | |", "|---|---|---|", *map(_option_row, rows), ""]
    return lines


def _option_row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = parameter.name.upper() if is_argument else ", ".join([*parameter.opts, *parameter.secondary_opts])
    default = "" if parameter.default is None or parameter.default is False else str(parameter.default)
    return f"| {code(names)} | {code(default)} | {cell(parameter.help or '')} |"


def page() -> str:
    """The whole page."""
    lines = [
        "# The API",
        "",
        "<!-- Made by docs/make_api.py from the sources: edit those. -->",
        "",
        f"The names are those of vLLM {VLLM_VERSION}, so that scripts written for it keep working; what isn't "
        "supported is refused by name, and nothing is dropped silently.",
        "",
    ]
    lines += parameters_text()
    for title, introduction, things in SECTIONS:
        lines += [f"## {title}", "", introduction, ""]
        for thing in things:
            lines += class_text(thing) if isinstance(thing, type) else function_text(thing)
    lines += [*errors_text(errors), *commands_text()]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
