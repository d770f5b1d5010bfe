"""Runs what must not wait for ever."""

import threading
from collections.abc import Callable
from typing import TypeVar

SECONDS = 300.0
"""Far more than anything takes, also where all kernels are compiled first and the machine is slow and busy; whoever
waits longer hangs."""

Result = TypeVar("Result")


def finishes(function: Callable[[], Result]) -> Result:
    """The function's result, from a thread of its own; AssertionError if it hangs."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]
    return results[0]
