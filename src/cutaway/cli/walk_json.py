"""A walk for programs: plain data with the keys that docs/walk.md names.

In: a ``Walk``. Out: dictionaries, lists, numbers and strings.
"""

from dataclasses import asdict
from typing import Any

from cutaway.audit.walk.walk import Walk
from cutaway.cli.tables import ledger_dict


def walk_dict(walk: Walk) -> dict[str, Any]:
    """The records' own field names are the keys."""
    data = asdict(walk)
    if walk.times is not None:
        decode = walk.times.decode
        data["times"] = {
            "limits": walk.times.limits.as_dict(),
            "prefill": ledger_dict(walk.times.prefill),
            "decode": None if decode is None else ledger_dict(decode),
        }
    return data
