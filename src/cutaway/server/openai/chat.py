"""``/v1/chat/completions``: a conversation, answered through the model's chat template.

In: OpenAI's request. Out: its reply, whole or as events.
"""

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.answers.begin import begin_answer
from cutaway.server.answers.beside import check_receipt
from cutaway.server.http.route import Route
from cutaway.server.openai.chat_prompt import read_chat
from cutaway.server.openai.chat_reply import ChatReply
from cutaway.server.openai.chat_schema import ChatRequest
from cutaway.server.openai.prompts import check_room
from cutaway.server.openai.taps import tap_request
from cutaway.server.respond import STREAMED, respond
from cutaway.server.service import Service

router = APIRouter(tags=["openai"], route_class=Route)


@router.post("/v1/chat/completions", responses=STREAMED)
async def chat_completions(request: Request, body: ChatRequest) -> Response:
    """Answer a conversation."""
    return await respond(request, begin(request, body))


async def begin(request: Request, body: ChatRequest) -> ChatReply:
    """Check the request and let it wait for its turn; what is wrong with it is an error here."""
    service: Service = request.app.state.service
    model = service.model
    model.check_name(body.model)
    ignored = body.left_out(model.llm.tokenizer)
    taps = tap_request(body.taps, service.settings.max_tap_bytes)
    check_receipt(model.llm, body)
    use, form = body.tool_use(), body.form()
    with form.errors():
        params = body.sampling_params(
            model.llm.default_params,
            logprobs=body.num_logprobs(),
            max_tokens=body.most_tokens(),
            structured_outputs=form.given,
        )
    tokenizer = model.llm.tokenizer
    prompt = await service.encode(lambda: read_chat(tokenizer, body.messages, use, body, model.context), "messages")
    name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    check_room(len(prompt.ids), params.max_tokens, model.context, "messages", name)
    name, state = f"chatcmpl-{request.state.request_id}", {**request.scope["state"], "reads_cache": body.reads_cache}
    timed = bool(body.return_timings)
    work, rules = await begin_answer(service, name, prompt, params, form, state, taps, timed)
    return ChatReply(model, work, body, ignored, rules)
