"""``cutaway bench``: speeds as llama-bench gives them, the machine's limits, the ledgers of a decode and a prefill
step, and two curves of decoding: against the rows of a step, and against the context.

In: a model and the lengths to measure at; llama.cpp, to be measured in turn. Out: tables as they are measured, or JSON;
a drawing of the ledgers under the limits.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from cutaway.cli.console import error_console, escaped, first_use
from cutaway.cli.files import check_can_be_written, write_result
from cutaway.cli.models import Json, ModelName
from cutaway.cli.options import KVDtype
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.hub import resolve

if TYPE_CHECKING:
    from cutaway.audit.ledger import Ledger
    from cutaway.audit.limits import MachineLimits
    from cutaway.audit.peer_process import PeerProcess
    from cutaway.engine.runner import ModelRunner
    from cutaway.model.config import ModelConfig

DECODE_CONTEXT = 128
PREFILL_TOKENS = 512
SPEED_ROUNDS = 5
DECODE_REPEATS = 31
PREFILL_REPEATS = 11
CURVE_REPEATS = 11


class Part(str, Enum):
    """What ``--only`` may name."""

    SPEED = "speed"
    LEDGER = "ledger"
    BATCH = "batch"
    CONTEXT = "context"


class Peer(str, Enum):
    """What ``--against`` may name."""

    LLAMA_CPP = "llama.cpp"


Shown = tuple[str, Any, list[Any]]  # its key in JSON, plain data, what to print
Show = Callable[[str, Any, list[Any]], None]


def bench(
    model: ModelName,
    only: Annotated[
        list[Part] | None, typer.Option(help="Measure this part; may be given again. Default: all four.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    kv_dtype: KVDtype = "f16",
    context: Annotated[
        int | None,
        typer.Option(help="Positions that a decoded token attends, in the ledger and against the batch; default, 128."),
    ] = None,
    prompt: Annotated[int | None, typer.Option(help="Tokens of the prompt that is measured; default, 512.")] = None,
    against: Annotated[Peer | None, typer.Option(help="Measure the speeds of this engine, too, in turn.")] = None,
    peer_python: Annotated[
        Path | None, typer.Option(help="The interpreter in which that engine is installed; default, this one.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Draw the ledgers' operations under the machine's roofline into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model's speed: as llama-bench does, operation by operation against the machine's limits, against batch
    and context.
    """
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.cli.tables import output_console
    from cutaway.engine.runner import ModelRunner
    from cutaway.formats.open_model import open_model
    from cutaway.model.config import read_config

    asked = set(only or Part)
    _check_options(asked, against, peer_python, svg)
    errors = error_console()
    status = _StatusLine(errors)
    console = output_console()
    data: dict[str, Any] = {}

    with first_use(errors) as (fetching, compiling), contextlib.ExitStack() as stack:

        def show(key: str, plain: Any, printed: list[Any]) -> None:
            status.clear()
            compiling.done()
            data[key] = plain
            for each in [] if as_json else [*printed, ""]:
                console.print(each, markup=False, emoji=False)

        path = resolve(model, fetching).path
        with open_model(path) as source:
            config = read_config(source)
            sizes = _sizes(config, asked, context, prompt)
            peer = None if against is None else stack.enter_context(_start_peer(path, threads, peer_python))
            weight_bytes = {name: tensor.nbytes for name, tensor in source.tensors.items()}
            runner = ModelRunner(source, threads=threads, kv_dtype=kv_dtype, **sizes.of_runner())
        data |= {"model": config.name, "kv_dtype": kv_dtype}
        with runner:
            if Part.SPEED in asked:
                show(*_speeds(runner, sizes.prompt, sum(weight_bytes.values()), peer, status))
            _measure_steps(runner, asked, sizes, weight_bytes, svg, status, show)
    if as_json:
        typer.echo(json.dumps(data, indent=2))


class Sizes(NamedTuple):
    """What is measured, and what the runner must have room for."""

    context: int  # positions that a decoded token attends
    prompt: int  # tokens of the prompt that is measured
    longest: int  # context of the curve
    rows: list[int]  # of the steps against the batch
    positions: int  # of one sequence
    pool: int  # positions of several sequences together

    def of_runner(self) -> dict[str, int]:
        """Arguments of ``ModelRunner``."""
        from cutaway.audit.curves import BATCH_ROWS
        from cutaway.audit.speed import SEQUENCES
        from cutaway.ops.cpu.kv_tiles import SUBTILE

        return {
            "context": self.positions,
            "max_tokens": max(self.prompt, BATCH_ROWS[-1]),
            "max_outputs": max(*self.rows, SEQUENCES),
            "num_pages": -(-max(self.pool, self.positions) // SUBTILE),
        }


def _sizes(config: "ModelConfig", asked: set[Part], context: int | None, prompt: int | None) -> Sizes:
    """What was asked for, or the defaults, within the model's context; InvalidRequestError for what exceeds it."""
    from cutaway.audit.curves import batch_rows
    from cutaway.audit.speed import ANSWER_TOKENS
    from cutaway.audit.workloads import check_length
    from cutaway.engine.runner import DEFAULT_CONTEXT
    from cutaway.ops.cpu.kv_tiles import SUBTILE

    context = min(DECODE_CONTEXT, config.context_length) if context is None else context
    prompt = min(PREFILL_TOKENS, config.context_length) if prompt is None else prompt
    check_length("context", context, config)
    check_length("prompt", prompt, config)
    longest = min(config.context_length, DEFAULT_CONTEXT)
    # The pool of one long context is also that of many short ones.
    pool = max(DEFAULT_CONTEXT, -(-context // SUBTILE) * SUBTILE)  # one row at least fits
    rows = batch_rows(context, pool) if Part.BATCH in asked else [1]
    positions = max(context, prompt, longest if Part.CONTEXT in asked else 2)
    if Part.SPEED in asked:
        positions = max(positions, min(ANSWER_TOKENS, config.context_length))
    several = asked & {Part.SPEED, Part.BATCH}  # sequences in one step
    return Sizes(context, prompt, longest, rows, positions, pool if several else 0)


def _measure_steps(
    runner: "ModelRunner",
    asked: set[Part],
    sizes: Sizes,
    weight_bytes: dict[str, int],
    svg: Path | None,
    status: "_StatusLine",
    show: Show,
) -> None:
    """The machine's limits, and the parts that stand beside them: ledgers and curves."""
    from cutaway.audit.limits import measure_limits
    from cutaway.audit.workloads import fill_kv
    from cutaway.cli.tables import FirstThatFits, limits_table

    fill_kv(runner.kv)
    status("measuring the machine's limits")
    limits = measure_limits(runner.team)
    show("limits", limits.as_dict(), [FirstThatFits(limits_table(limits), limits_table(limits, narrow=True))])
    if Part.LEDGER in asked:
        ledgers = _ledgers(runner, sizes.context, sizes.prompt, weight_bytes, limits, status, show)
        if svg is not None:
            _draw(svg, ledgers, runner.config.name, limits)
            show("svg", str(svg), [f"The operations under the machine's roofline: {svg}"])
    if Part.BATCH in asked:
        show(*_batch_curve(runner, sizes.rows, sizes.context, weight_bytes, limits, status))
    if Part.CONTEXT in asked:
        show(*_context_curve(runner, sizes.longest, weight_bytes, limits, status))


def _check_options(asked: set[Part], against: Peer | None, peer_python: Path | None, svg: Path | None) -> None:
    """Refuse options that would do nothing."""
    if against is not None and Part.SPEED not in asked:
        raise InvalidRequestError(
            f"--against {against.value} compares speeds, which --only leaves out; add --only speed.", "against"
        )
    if peer_python is not None and against is None:
        raise InvalidRequestError("--peer-python is of no use without --against llama.cpp.", "peer_python")
    if svg is not None and Part.LEDGER not in asked:
        raise InvalidRequestError("--svg draws the ledgers, which --only leaves out; add --only ledger.", "svg")
    if svg is not None:
        check_can_be_written(svg, "--svg")


def _start_peer(model: Path, threads: int | None, python: Path | None) -> "PeerProcess":
    """llama.cpp with the same file and as many threads."""
    from cutaway.audit.llama_cpp_process import CannotRunError
    from cutaway.audit.peer_process import PeerProcess, llama_cpp_command
    from cutaway.ops.cpu.processors import default_threads
    from cutaway.ops.cpu.threads import check_threads

    if model.is_dir():
        raise InvalidRequestError(
            f"llama.cpp reads GGUF files; {model} is a folder. Name a GGUF file, or leave out --against.", "against"
        )
    interpreter = Path(sys.executable) if python is None else python
    threads = default_threads() if threads is None else threads
    check_threads(threads)
    try:
        return PeerProcess(Peer.LLAMA_CPP.value, llama_cpp_command(interpreter, model, threads))
    except OSError as error:
        raise InvalidRequestError(
            f"--peer-python {interpreter} can't be run ({error.strerror}); name an interpreter of Python.",
            "peer_python",
        ) from None
    except CannotRunError as error:
        raise InvalidRequestError(
            f"llama.cpp can't be measured by {interpreter} ({error}). It takes the package llama-cpp-python there: "
            "pip install llama-cpp-python, built with CMAKE_ARGS=-DGGML_NATIVE=ON for its full speed; or name another "
            "interpreter that has it by --peer-python.",
            "against",
        ) from None


def _speeds(
    runner: "ModelRunner", prompt: int, model_bytes: int, peer: "PeerProcess | None", status: "_StatusLine"
) -> Shown:
    """The first table: pp512, tg128, 16×tg32."""
    from cutaway.audit.greedy_engine import GreedyEngine
    from cutaway.audit.llama_cpp_process import CannotRunError
    from cutaway.audit.speed import OURS, measure_speeds, workloads
    from cutaway.cli.speed_table import speed_dict, speed_explanation, speed_table

    engines = {OURS: GreedyEngine(runner).measure}
    if peer is not None:
        engines[peer.name] = peer.measure
    works = workloads(prompt, runner.context, runner.kv.num_pages * runner.kv.page_length)
    heard = status.rounds("measuring " + ", ".join(work.name for work in works))
    try:
        speeds = measure_speeds(engines, works, runner.vocab_size, SPEED_ROUNDS, heard)
    except CannotRunError as error:
        raise CutawayError(f"llama.cpp gave up ({error}). Measure without --against.") from None
    told = speed_explanation(speeds, escaped(runner.config.name), model_bytes, runner.team.size)
    info = {} if peer is None else {peer.name: peer.info}
    return "speed", speed_dict(speeds, info), [speed_table(speeds), *told]


def _draw(svg: Path, ledgers: "list[Ledger]", model: str, limits: "MachineLimits") -> None:
    """The ledgers' operations under the machine's roofline, into a file."""
    from cutaway.audit.roofline import points_of, roofline_svg

    titles = [f"{each.tokens:,} token{'s' * (each.tokens > 1)} at context {each.context:,}" for each in ledgers]
    threads = f"{limits.threads} thread{'s' * (limits.threads != 1)}"
    drawing = roofline_svg(f"{model}, {threads}", titles, points_of(ledgers), limits)
    write_result(svg, drawing)


def _ledgers(
    runner: "ModelRunner",
    context: int,
    prompt: int,
    weight_bytes: dict[str, int],
    limits: "MachineLimits",
    status: "_StatusLine",
    show: Show,
) -> "list[Ledger]":
    """The ledgers of a decode step and of a prefill step, each shown when it is there."""
    from cutaway.audit.ledger import measure_ledgers
    from cutaway.audit.workloads import decode_batch, prefill_batch
    from cutaway.cli.tables import (
        LEGEND,
        FirstThatFits,
        ledger_dict,
        ledger_summary,
        ledger_table,
        narrow_ledger_table,
    )

    works = (
        ("decode", f"Decode: 1 token at context {context}", decode_batch(runner, context), DECODE_REPEATS),
        ("prefill", f"Prefill: {prompt} tokens", prefill_batch(runner, prompt), PREFILL_REPEATS),
    )
    ledgers = []
    for key, title, batch, repeats in works:
        heard = status.rounds(f"measuring a {key} step")
        (ledger,) = measure_ledgers(runner, [batch], weight_bytes, limits, repeats, heard)
        heading = f"{title}, {runner.config.name}"
        table = FirstThatFits(ledger_table(ledger, heading), narrow_ledger_table(ledger, heading))
        legend = [LEGEND] if key == "prefill" else []
        show(key, ledger_dict(ledger), [table, *ledger_summary(ledger), *legend])
        ledgers.append(ledger)
    return ledgers


def _batch_curve(
    runner: "ModelRunner",
    rows: list[int],
    context: int,
    weight_bytes: dict[str, int],
    limits: "MachineLimits",
    status: "_StatusLine",
) -> Shown:
    """The speed of decoding against the rows of a step."""
    from cutaway.audit.curves import measure_batch_curve
    from cutaway.cli.curve_tables import batch_dict, batch_explanation, batch_table
    from cutaway.cli.tables import unrest

    heard = status.rounds(f"measuring batches of 1 to {rows[-1]} rows")
    curve = measure_batch_curve(runner, rows, context, weight_bytes, limits, CURVE_REPEATS, heard)
    title = f"Batch: one token in each row, each at context {context}, {runner.config.name}"
    return "batch", batch_dict(curve), [batch_table(curve, title), *batch_explanation(curve), *unrest(curve.ledgers)]


def _context_curve(
    runner: "ModelRunner",
    longest: int,
    weight_bytes: dict[str, int],
    limits: "MachineLimits",
    status: "_StatusLine",
) -> Shown:
    """The speed of decoding against the context."""
    from cutaway.audit.curves import contexts_up_to, measure_context_curve
    from cutaway.cli.curve_tables import context_dict, context_explanation, context_table
    from cutaway.cli.tables import unrest

    heard = status.rounds(f"measuring contexts of 1 to {longest:,} positions")
    curve = measure_context_curve(runner, contexts_up_to(longest), weight_bytes, limits, CURVE_REPEATS, heard)
    title = f"Context: one token, {runner.config.name}"
    return (
        "context",
        context_dict(curve),
        [context_table(curve, title), *context_explanation(curve), *unrest(curve.ledgers)],
    )


class _StatusLine:
    """One line on standard error that says what is being measured; where that is no terminal, a line for each thing."""

    def __init__(self, console: Console) -> None:
        self._is_terminal = console.is_terminal
        self._last = ""

    def __call__(self, text: str) -> None:
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[K{text} …" if text else "\r\x1b[K")
            sys.stderr.flush()
        elif (what := text.partition(":")[0]) and what != self._last:  # without its rounds
            self._last = what
            sys.stderr.write(f"{what} …\n")
            sys.stderr.flush()

    def rounds(self, text: str) -> Callable[[int, int], None]:
        """A listener that counts rounds."""
        return lambda done, total: self(f"{text}: round {done + 1} of {total}")

    def clear(self) -> None:
        """Take the line away."""
        self("")
