"""``/slots``: who lives where: each sequence's state, tokens and blocks, and why it is there. Never any text.

In: the engine's core between two steps, and which of its requests are the asking client's. Out: a JSON object; of other
keys' requests only counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.engine.core import EngineCore
from cutaway.scheduler.decisions import Decision
from cutaway.scheduler.sequence import SequenceState
from cutaway.server.http.auth import Client
from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.service import Service

router = APIRouter(tags=["server"], route_class=Route)


@router.get("/slots")
async def slots(request: Request) -> Response:
    """The engine's sequences and blocks as they are between two steps."""
    service: Service = request.app.state.service
    client: Client = request.state.client
    mine = {
        stream.request_id: name
        for name, work in service.works.items()
        if work.client == client
        for stream in work.streams
    }
    return json_response(
        await service.ask_engine(lambda core: slots_of(core, mine, everything=len(service.settings.api_keys) < 2))
    )


def slots_of(core: EngineCore, mine: Mapping[str, str], *, everything: bool) -> dict[str, Any]:
    """mine: the engine's id of each request that may be shown → its name for the client.

    everything: whether there are no other clients, whose blocks could be among the cached ones.
    """
    scheduler, pool = core.scheduler, core.scheduler.blocks.pool
    reasons = reasons_of(scheduler.log.read())
    shown, others = [], {"running": 0, "waiting": 0, "blocks": 0}
    for sequence in scheduler.sequences():
        name = mine.get(sequence.request.id.partition("+")[0])
        if name is not None:
            shown.append(_slot(core, sequence, name, reasons))
        else:
            others[sequence.state.value] += 1
            others["blocks"] += 0 if sequence.table is None else len(sequence.table.blocks)
    limits = scheduler.limits
    return {
        "policy": scheduler.policy.name,
        "limits": {
            "sequences": limits.max_sequences,
            "step_tokens": limits.max_step_tokens,
            "waiting": limits.max_waiting,
            "waiting_tokens": limits.max_waiting_tokens,
        },
        "blocks": {
            "length": scheduler.blocks.block_length,
            "total": pool.num_blocks,
            "held": pool.num_blocks - pool.num_free,
            "cached": pool.num_kept,
            "free": pool.num_free - pool.num_kept,
            "cached_blocks": pool.kept() if everything else None,
        },
        "totals": asdict(core.totals),
        "sequences": shown,
        "others": others,
    }


def reasons_of(decisions: Iterable[Decision]) -> dict[tuple[str, int], str]:
    """The last decision on each choice of each request: "7[0,1]" is on two of them, "7" on the only one."""
    found: dict[tuple[str, int], str] = {}
    for each in decisions:
        request, _, choices = each.name.rstrip("]").partition("[")
        for choice in choices.split(",") if choices else ("0",):
            found[request, int(choice)] = f"{each.action}: {each.reason}"
    return found


def _slot(
    core: EngineCore, sequence: SequenceState, name: str, reasons: Mapping[tuple[str, int], str]
) -> dict[str, Any]:
    return {
        "id": name,
        "choices": list(sequence.choices),
        "state": sequence.state.value,
        "reason": reasons.get((sequence.request.id, sequence.choices[0])),
        "seconds": round(core.clock() - sequence.request.arrival, 3),
        "prompt_tokens": len(sequence.request.ids),
        "generated_tokens": sequence.num_new_tokens,
        "computed_tokens": sequence.num_computed,
        "max_new_tokens": sequence.request.max_new_tokens,
        "blocks": [] if sequence.table is None else list(sequence.table.blocks),
    }
