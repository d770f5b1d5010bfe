"""The progress bar of a list of requests, in a terminal or a notebook.

In: streams. Out: their outputs, one by one, with a line on standard error that counts requests and tokens.
"""

from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item", covariant=True)


class SizedIterable(Sized, Iterable[Item], Protocol[Item]):
    """What has a length and can be iterated."""


def with_progress(items: SizedIterable[Item], shown: bool) -> Iterator[Item]:
    """The items, one by one. Nothing is drawn for a single one, nor where standard error is no terminal."""
    console = Console(stderr=True)
    if not shown or len(items) < 2 or not (console.is_terminal or console.is_jupyter):
        yield from items
        return
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield from bar.track(items, total=len(items))
