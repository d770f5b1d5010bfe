"""What a request comes to: the parameters in effect, and the fields that were ignored.

In: the engine's work for it, at its end. Out: what the reply's "cutaway" object has of it, for any API.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cutaway.server.work import Work


def parameters_of(work: Work, ignored: Sequence[str], wanted: bool | None) -> dict[str, Any]:
    """``parameters``, the ``seeds`` and ``statistics`` of each prompt, ``ignored``; nothing where it is not wanted."""
    if not wanted:
        return {}
    return {
        "parameters": asdict(work.params),
        "seeds": [stream.seed for stream in work.streams],
        "ignored": list(ignored),
        "statistics": [asdict(stream.statistics()) for stream in work.streams],
    }
