"""The errors that Cutaway raises on purpose: one small family under ``CutawayError``.

Every message states the value that was refused, the limit it broke and the remedy. The command line prints the
message alone, without a traceback, and ends with the class's ``exit_code``.
"""

from typing import Final

MOST_SHOWN: Final = 500
"""Characters of a refused value that a message repeats."""


def shown(value: object) -> str:
    """``repr``, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # an integer of more than 4,300 digits, lists in lists without end, a class that can't
        return f"a {type(value).__name__} that can't be shown"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def counted(number: int, noun: str) -> str:
    """The number with its noun: "1 block", "2,000 blocks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class CutawayError(Exception):
    """Base of all errors that a user's input, files or machine can cause."""

    exit_code: int = 1


class InvalidRequestError(CutawayError, ValueError):
    """A parameter or prompt lies outside what is allowed; ``field`` names it."""

    exit_code = 2

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ModelFileError(CutawayError):
    """A model file is missing, truncated, malformed, or of a kind that is not supported."""

    exit_code = 3


class DownloadError(CutawayError):
    """A model could not be fetched, or what arrived is not what was expected."""

    exit_code = 4


class CapacityError(CutawayError):
    """Memory, disk or context does not suffice for what was asked; ``field`` names the parameter, where it is one."""

    exit_code = 5

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class QueueFullError(CapacityError):
    """The waiting queue has no place now; ``retry_after`` estimates in how many seconds it will, None if unknown."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnsupportedMachineError(CutawayError):
    """The processor or the platform is not one that kernels exist for: x86-64-v3, aarch64 with dot products."""

    exit_code = 6


class ComputationError(CutawayError):
    """The numbers of a step can't be used: logits that are not numbers, or that leave no token to choose."""

    exit_code = 7
