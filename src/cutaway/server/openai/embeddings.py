"""``/v1/embeddings``: texts as vectors.

In: OpenAI's request. Out: its reply: a vector of length 1 for each text, as numbers or as bytes.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.engine.pooling import Pooling
from cutaway.server.answers.beside import check_receipt, proofs
from cutaway.server.http.errors import ApiError
from cutaway.server.http.route import Route
from cutaway.server.openai.embedding_schema import EmbeddingRequest
from cutaway.server.openai.prompts import check_places, check_prompt_ids, encode_prompts, place_of, read_prompts
from cutaway.server.respond import Sendable, respond
from cutaway.server.service import ServedModel, Service
from cutaway.server.work import Work

router = APIRouter(tags=["openai"], route_class=Route)


@dataclass(frozen=True)
class Embeddings(Sendable):
    """How one request is replied to."""

    model: ServedModel
    work: Work
    body: EmbeddingRequest
    ignored: Sequence[str]  # fields
    pooling: Pooling
    as_base64: bool

    async def whole(self) -> dict[str, Any]:
        """The reply when all is there."""
        outputs = await self.work.embeddings()
        tokens = sum(len(each.prompt_token_ids) for each in outputs)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": number, "embedding": self._vector(each.outputs.embedding)}
                for number, each in enumerate(outputs)
            ],
            "model": self.body.model or self.model.names[0],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "cutaway": {
                "pooling": self.pooling,
                "normalized": True,
                "dimensions": self.model.llm.runner.config.width,
                **({"ignored": list(self.ignored)} if self.body.return_parameters else {}),
                **proofs(self.work, self.body),
            },
        }

    def _vector(self, values: Sequence[float]) -> str | list[float]:
        if self.as_base64:
            return base64.b64encode(np.array(values, "<f4").tobytes()).decode("ascii")
        return list(values)


@router.post("/v1/embeddings")
async def embeddings(request: Request, body: EmbeddingRequest) -> Response:
    """Embed texts."""
    return await respond(request, begin(request, body))


async def begin(request: Request, body: EmbeddingRequest) -> Embeddings:
    """Check the request and let it wait for its turn; what is wrong with it is an error here."""
    service: Service = request.app.state.service
    model = service.model
    model.check_name(body.model)
    ignored = body.ignored()
    check_receipt(model.llm, body)
    as_base64, pooling = body.wants_base64(), body.pooling_in_effect()
    body.check_dimensions(model.llm.runner.config.width)
    prompts = read_prompts(body.input, "input")
    tokenizer = model.llm.tokenizer

    def encoded() -> list[list[int]]:
        ids = encode_prompts(tokenizer, prompts, model.context, "input")
        for number, each in enumerate(ids):
            check_prompt(each, model, place_of(number, len(ids), "input"))
        return ids

    ids = await service.encode(encoded, "input")
    check_places(ids, 1, model.llm.settings, "input")
    name, timed = f"embd-{request.state.request_id}", bool(body.return_timings)
    work = await service.begin_embeddings(name, ids, pooling, request.scope["state"], timed)
    return Embeddings(model, work, body, ignored, pooling, as_base64)


def check_prompt(ids: Sequence[int], model: ServedModel, place: str) -> None:
    """Refuse a prompt without tokens, one with ids of another vocabulary, and one that the context doesn't hold."""
    check_prompt_ids(ids, model.llm.tokenizer.vocab_size, place)
    if len(ids) > model.context:
        raise ApiError(
            400,
            f"{place} has {len(ids)} tokens; the context holds {model.context}. Cut it into several, or start the "
            "server with a larger --max-model-len, where the model allows it.",
            place,
            "context_length_exceeded",
        )
