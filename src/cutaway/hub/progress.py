"""How a fetch tells its caller how far it is: a stage, the bytes done and the bytes to do."""

from typing import Protocol


class Progress(Protocol):
    """Called often, on the thread that fetches.

    ``stage`` is ``"wait"`` (another process fetches the same file), ``"download"`` (bytes of the wheel, or of all
    files of a repository's model), ``"unpack"`` (bytes of the model file) or ``"check"`` (bytes of a file from a
    repository). ``total`` is None while it is unknown.
    """

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of the stage are there."""
