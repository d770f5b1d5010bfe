"""The command ``cutaway``: its subcommands, and how errors end it.

In: arguments. Out: an exit code; a ``CutawayError`` becomes one line on standard error, never a traceback.
"""

import sys
from typing import Annotated

import typer

from cutaway import __version__
from cutaway.cli.bench import bench
from cutaway.cli.console import error_console
from cutaway.cli.doctor import doctor
from cutaway.cli.models import ls, pull, rm, show
from cutaway.cli.run import run
from cutaway.cli.shapes import shapes
from cutaway.errors import CutawayError

INTERRUPTED = 130  # 128 + SIGINT, as shells count

app = typer.Typer(
    name="cutaway",
    help="An LLM inference engine with its casing open.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, pull, ls, rm, show, shapes, bench, doctor):
    app.command()(command)


def _version(value: bool) -> None:
    if value:
        print(f"cutaway {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the subcommand."""


def main() -> None:
    """Run the command line and exit."""
    try:
        app()
    except CutawayError as error:
        error_console().print(f"[bold red]error:[/] {_escape(str(error))}", soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output is gone, as in `cutaway ls | head`
        sys.stderr.close()
        sys.exit(1)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
