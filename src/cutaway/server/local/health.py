"""``/health`` and ``/version``: whether the server takes requests, and what it is.

In: nothing. Out: 200 or 503; the version.
"""

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway import __version__
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.server.http.errors import broken
from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.service import Service

router = APIRouter(tags=["server"], route_class=Route)


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health(request: Request) -> Response:
    """200 where requests are taken; 503 while the model is being loaded, when the server ends, and where the engine has
    lost track of its memory, so that whoever watches starts the server again.
    """
    service: Service = request.app.state.service
    if not service.ready:
        _ = service.model  # says which of the two
    if service.model.llm.is_broken:
        raise broken()
    return json_response({"status": "ok"})


@router.get("/version")
async def version() -> Response:
    """The program's version, and that of its numerical contract."""
    return json_response({"version": __version__, "numerics_version": NUMERICS_VERSION})
