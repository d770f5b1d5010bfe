"""The command ``cutaway``: its subcommands, and how errors end it.

In: arguments. Out: an exit code; an error becomes one line on standard error, never a traceback.
"""

import io
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from cutaway import __version__
from cutaway.cli.bench import bench
from cutaway.cli.chat import chat
from cutaway.cli.console import INTERRUPTED, print_message
from cutaway.cli.doctor import doctor
from cutaway.cli.ladder import ladder
from cutaway.cli.models import ls, pull, rm
from cutaway.cli.parity import parity
from cutaway.cli.plan import plan
from cutaway.cli.receipts import receipts
from cutaway.cli.run import run
from cutaway.cli.serve import serve
from cutaway.cli.shapes import shapes
from cutaway.cli.show import show
from cutaway.cli.tokenize import tokenize
from cutaway.cli.trace import trace
from cutaway.cli.train_tokenizer import train_tokenizer
from cutaway.cli.verify import verify
from cutaway.cli.walk import walk
from cutaway.errors import CutawayError

USAGE = 2

app = typer.Typer(
    name="cutaway",
    help="An LLM inference engine with its casing open.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    run,
    chat,
    serve,
    walk,
    trace,
    verify,
    receipts,
    tokenize,
    train_tokenizer,
    pull,
    ls,
    rm,
    show,
    shapes,
    plan,
    bench,
    ladder,
    parity,
    doctor,
)
for command in COMMANDS:
    app.command()(command)

UsageError: Any = typer.BadParameter.__base__  # of every fault in the arguments; Typer doesn't export it


def _version(value: bool) -> None:
    if value:
        print(f"cutaway {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the subcommand."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(USAGE)


def main() -> None:
    """Run the command line and exit."""
    warnings.showwarning = lambda message, *_: print_message("warning", str(message))
    code = _exit_code()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:  # told already
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that closing it can't fail again
    if code == INTERRUPTED:
        # Another thread may be compiling a kernel still, and would work on in an interpreter that is being torn down.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _exit_code() -> int:
    """Run the command line; every way in which it can end, as an exit code."""
    try:
        if sys.stdout is None:
            raise CutawayError("standard output is closed; the answer has nowhere to go. Open it, or use > /dev/null.")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks is still shown
        code = app(prog_name="cutaway", standalone_mode=False)
        sys.stdout.flush()
    except CutawayError as error:
        print_message("error", str(error))
        return error.exit_code
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "cutaway"
        print_message("error", f"{error.format_message().rstrip('.')}. See {command} --help.")
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone, as in `cutaway ls | head`
        return 1
    except OSError as error:
        if error.filename is not None:
            raise
        print_message("error", f"standard output can't be written ({error.strerror}). Mend this and try again.")
        return 1
    return code or 0
