"""``cutaway parity``: the engine beside its definition in float64, operation by operation, and beside transformers.

In: a model, a text. Out: tables of errors and budgets, or one JSON object; the exit code is 1 where a budget is broken.
"""

import json
import math
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from cutaway.cli.console import FetchProgress, error_console, first_use
from cutaway.cli.models import ModelName
from cutaway.cli.options import KVDtype, Threads
from cutaway.cli.prompt import read_prompt
from cutaway.cli.stages import stages
from cutaway.errors import InvalidRequestError, counted
from cutaway.hub import resolve

TEXT: Final = (
    "The capital of France is Paris, which lies on the Seine. In the year 1889 a tower of iron was built there; many "
    "thought it ugly, and wanted it to be taken down again after twenty years."
)
BROKEN: Final = 1  # the exit code


class Peer(str, Enum):
    """What else can compute the model."""

    TRANSFORMERS = "transformers"


def parity(
    model: ModelName,
    text: Annotated[
        str | None, typer.Option("--text", "-t", help="What both read; default, two sentences. - is standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the text from a file.")] = None,
    against: Annotated[Peer | None, typer.Option(help="Compare with this as well, where it is installed.")] = None,
    python: Annotated[
        Path | None, typer.Option(help="With --against: the interpreter that has it. Default: this one.")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show each operation of each layer.")] = False,
    kv_dtype: KVDtype = "f16",
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; docs/parity.md names its keys.")
    ] = False,
) -> None:
    """Run float64 and the engine on a text: the error of each operation, where it grows, what it does to the answer."""
    if python is not None and against is None:
        raise InvalidRequestError("--python is of no use without --against transformers.", "python")
    if text is not None and file is not None:
        raise InvalidRequestError("there are --text and --file; give one of them.", "text")
    told = TEXT if text is None and file is None else read_prompt(text, file, "parity")

    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.parity.against import check_interpreter, stand_beside
    from cutaway.audit.parity.parity import LONGEST_TEXT, measure_parity
    from cutaway.audit.parity.streams import Streams
    from cutaway.cli.parity_tables import parity_dict, parity_pages
    from cutaway.cli.tables import output_console, print_whole
    from cutaway.engine.llm import LLM
    from cutaway.formats.open_model import open_model
    from cutaway.memory.available import check_free
    from cutaway.model.reference import load_reference
    from cutaway.tokenizer.legal_text import check_legal

    check_legal(told, "the text")
    console = error_console()
    with FetchProgress(console) as fetching:
        path = resolve(model, fetching).path
    if against is not None:
        with stages(console) as stage:
            stage.begin("looking for torch and transformers")
            check_interpreter(path, python)
    with (
        first_use(console) as (fetching, compiling),
        stages(console) as stage,
        LLM(
            model,
            threads=threads,
            kv_dtype=kv_dtype,
            max_num_seqs=1,
            batching="continuous",
            progress=fetching,
        ) as llm,
    ):
        compiling.done()
        ids = llm.tokenizer.encode(told)
        if len(ids) > LONGEST_TEXT:
            raise InvalidRequestError(
                f"the text has {len(ids)} tokens; parity is measured on {LONGEST_TEXT} at most. Give a shorter one.",
                "text",
            )
        with open_model(llm.model.path) as source:
            needed = 4 * sum(math.prod(tensor.shape) for tensor in source.tensors.values())
            remedy = "Free memory, or take a smaller model of the same family."
            check_free(needed, "the model by definition", remedy)
            stage.begin("reading the weights in float64")
            _, exact = load_reference(source)
        streams = None if against is None else Streams(llm.runner.config.num_layers)
        stage.begin(f"{counted(len(ids), 'token')} through the engine and in float64")
        found = measure_parity(llm.runner, exact, ids, kv_dtype=kv_dtype, streams=streams, told=stage.at)
        foreign = None
        if streams is not None:
            stage.begin("the same through transformers")
            foreign = stand_beside(llm.model.path, ids, python, streams, llm.runner.config)
    if as_json:
        typer.echo(json.dumps(parity_dict(found, foreign), allow_nan=False))
    else:
        print_whole(output_console(), parity_pages(found, foreign, layers))
    if found.first_over is not None or not found.same_bits or (foreign is not None and foreign.first_over is not None):
        raise typer.Exit(BROKEN)
