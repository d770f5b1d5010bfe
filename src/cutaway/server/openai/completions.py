"""``/v1/completions``: texts, completed as they are.

In: OpenAI's request. Out: its reply, whole or as events.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.sampling.params import SamplingParams
from cutaway.server.answers.beside import check_receipt
from cutaway.server.http.route import Route
from cutaway.server.openai.completion_reply import CompletionReply
from cutaway.server.openai.completion_schema import DEFAULT_TOKENS, CompletionRequest
from cutaway.server.openai.prompts import (
    check_places,
    check_prompt_ids,
    check_room,
    encode_prompts,
    place_of,
    read_prompts,
)
from cutaway.server.openai.taps import check_tap_bytes, tap_request
from cutaway.server.respond import STREAMED, respond
from cutaway.server.service import Service

router = APIRouter(tags=["openai"], route_class=Route)


@router.post("/v1/completions", responses=STREAMED)
async def completions(request: Request, body: CompletionRequest) -> Response:
    """Complete texts."""
    return await respond(request, begin(request, body))


async def begin(request: Request, body: CompletionRequest) -> CompletionReply:
    """Check the request and let it wait for its turn; what is wrong with it is an error here."""
    service: Service = request.app.state.service
    model = service.model
    model.check_name(body.model)
    ignored = body.ignored()
    check_receipt(model.llm, body)
    body.check()
    taps = tap_request(body.taps, service.settings.max_tap_bytes)
    form = body.form()
    with form.errors():
        params = completion_params(body, model.llm.default_params, structured_outputs=form.given)
    prompts = read_prompts(body.prompt)
    tokenizer = model.llm.tokenizer
    wanted = None if body.max_tokens is None else params.max_tokens

    def encoded() -> list[list[int]]:
        found = encode_prompts(tokenizer, prompts, model.context, "prompt")
        for number, each in enumerate(found):
            place = place_of(number, len(found), "prompt")
            check_room(len(each), wanted, model.context, place)  # first: it doesn't look at each id
            check_prompt_ids(each, tokenizer.vocab_size, place)
        return found

    ids = await service.encode(encoded, "prompt")
    check_places(ids, params.n, model.llm.settings, "prompt")
    if taps is not None and len(ids) > 1:  # one alone is told of its own limit
        most, limit = params.max_tokens or 1, service.settings.max_tap_bytes or 0
        await asyncio.to_thread(check_tap_bytes, taps, ids, most, params.n, model.llm.runner, limit)
    with form.errors():
        name, state = f"cmpl-{request.state.request_id}", {**request.scope["state"], "reads_cache": body.reads_cache}
        timed = bool(body.return_timings)
        work = await service.begin(name, ids, params, state, taps=taps, errors=form.errors, timed=timed)
    return CompletionReply(model, work, body, ignored, prompts)


def completion_params(body: CompletionRequest, advised: Mapping[str, Any], **others: Any) -> SamplingParams:
    """The sampling parameters. Without a token nothing is computed, so that an echo alone has one, which is dropped."""
    most = 1 if body.echo_only else DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens
    scores = {"prompt_logprobs": body.logprobs} if body.echo and body.logprobs is not None else {}
    return body.sampling_params(advised, logprobs=body.logprobs, max_tokens=most, **scores, **others)
