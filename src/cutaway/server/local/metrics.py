"""``/metrics``: the server's counts for Prometheus.

In: nothing. Out: the text exposition.
"""

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.route import Route
from cutaway.server.metrics import EngineState
from cutaway.server.service import Service

router = APIRouter(tags=["server"], route_class=Route)


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
async def metrics(request: Request) -> Response:
    """All metrics."""
    service: Service = request.app.state.service
    state = await service.ask_engine(EngineState.of)
    return Response(service.model.metrics.exposition(state), media_type="text/plain; version=0.0.4; charset=utf-8")
