"""``/v1/chat/completions``: a conversation, answered through the model's chat template.

In: OpenAI's request. Out: its reply, whole or as events.
"""

import asyncio

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.route import Route
from cutaway.server.openai.chat_prompt import chat_ids
from cutaway.server.openai.chat_reply import ChatReply
from cutaway.server.openai.chat_schema import ChatRequest
from cutaway.server.openai.prompts import check_room
from cutaway.server.openai.reply import respond
from cutaway.server.service import Service

router = APIRouter(tags=["openai"], route_class=Route)


@router.post("/v1/chat/completions")
async def chat_completions(request: Request, body: ChatRequest) -> Response:
    """Answer a conversation."""
    return await respond(request, begin(request, body))


async def begin(request: Request, body: ChatRequest) -> ChatReply:
    """Check the request and let it wait for its turn; what is wrong with it is an error here."""
    service: Service = request.app.state.service
    model = service.model
    model.check_name(body.model)
    ignored = body.ignored()
    params = body.sampling_params(logprobs=body.num_logprobs(), max_tokens=body.most_tokens())
    tokenizer = model.llm.tokenizer
    ids = await asyncio.to_thread(chat_ids, tokenizer, body.messages, body)
    name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    check_room(len(ids), params.max_tokens, model.context, "messages", name)
    work = await service.begin(f"chatcmpl-{request.state.request_id}", [ids], params, request.scope["state"])
    return ChatReply(model, work, body, ignored)
