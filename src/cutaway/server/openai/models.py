"""``/v1/models``: the one model, under each of its names.

In: a name. Out: OpenAI's model objects, with the context as vLLM tells it.
"""

from typing import Any

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.service import ServedModel

router = APIRouter(tags=["models"], route_class=Route)


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """All names."""
    model: ServedModel = request.app.state.service.model
    return json_response({"object": "list", "data": [_entry(model, name) for name in model.names]})


@router.get("/v1/models/{name:path}")
async def one_model(request: Request, name: str) -> Response:
    """One of them."""
    model: ServedModel = request.app.state.service.model
    model.check_name(name)
    return json_response(_entry(model, name))


def _entry(model: ServedModel, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "cutaway",
        "root": model.llm.model.name,
        "parent": None,
        "max_model_len": model.context,
        "default_sampling_params": dict(model.llm.default_params),
    }
