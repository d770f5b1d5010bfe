"""``/ledger``: what all that the engine computes for some seconds takes, operation by operation.

In: how many seconds. Out: a ledger of the steps in them, beside the machine's limits. Never any text, and nobody's
name.
"""

import asyncio
from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.disconnect import while_connected
from cutaway.server.http.errors import shutting_down
from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.service import Service
from cutaway.server.timings import Timings

MOST_SECONDS: Final = 60.0

router = APIRouter(tags=["server"], route_class=Route)


@router.get("/ledger")
async def ledger(
    request: Request, seconds: Annotated[float, Query(gt=0, le=MOST_SECONDS, description="How long to look.")] = 1.0
) -> Response:
    """Have all steps run timed for so long, and say what they took; ApiError 503 where the server ends meanwhile."""
    model = (service := request.app.state.service).model
    assert isinstance(service, Service)
    timings = await Timings.begin(model.llm, model.meter, None)
    try:
        await while_connected(request.receive, _wait(service, seconds))
        return json_response({"interval": seconds, **timings.as_dict()})
    finally:
        timings.end()


async def _wait(service: Service, seconds: float) -> None:
    """Until the time has passed; ApiError 503 where what runs is aborted meanwhile."""
    with suppress(TimeoutError):
        await asyncio.wait_for(service.ending.wait(), seconds)
        raise shutting_down()
