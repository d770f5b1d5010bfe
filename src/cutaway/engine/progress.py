"""The progress bar of a list of requests, in a terminal or a notebook.

In: how many requests. Out: a line on standard error that counts them as they end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(count: int, shown: bool) -> Iterator[Callable[[], None]]:
    """Call what it yields for each request that ends. Nothing is drawn for a single one, nor where standard error is no
    terminal.
    """
    if not shown or count < 2:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda: None
        return
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("requests", total=count)
        yield lambda: bar.advance(task)
