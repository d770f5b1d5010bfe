"""``/v1/responses``: an answer that may follow another one, whose conversation the server has kept.

In: OpenAI's request. Out: a response, whole or as events; one that is kept, by its id.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.errors import InvalidRequestError
from cutaway.server.answers.begin import begin_answer
from cutaway.server.answers.beside import check_receipt
from cutaway.server.answers.prompt import ChatPrompt, chat_prompt
from cutaway.server.http.auth import Client
from cutaway.server.http.errors import renamed
from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.openai.prompts import check_room
from cutaway.server.openai.response_items import Items, answer_message, read_items
from cutaway.server.openai.response_reply import ResponseReply
from cutaway.server.openai.response_schema import ResponseRequest
from cutaway.server.openai.response_store import ResponseStore
from cutaway.server.respond import STREAMED, respond
from cutaway.server.service import Service
from cutaway.tokenizer.tokenizer import Tokenizer

router = APIRouter(tags=["openai"], route_class=Route)


@router.post("/v1/responses", responses=STREAMED)
async def responses(request: Request, body: ResponseRequest) -> Response:
    """Answer, and keep the answer."""
    return await respond(request, begin(request, body))


@router.get("/v1/responses/{name}")
async def one_response(request: Request, name: str) -> Response:
    """A response that is kept."""
    store: ResponseStore = request.app.state.responses
    found = store.find(request.state.client, name)
    if found is None:
        raise store.missing(404, name, None, "response_not_found", "Ask again for the answer.")
    return json_response(found.response)


@router.delete("/v1/responses/{name}")
async def delete_response(request: Request, name: str) -> Response:
    """Forget a response that is kept; those that follow it have the whole conversation."""
    store: ResponseStore = request.app.state.responses
    if not store.forget(request.state.client, name):
        raise store.missing(404, name, None, "response_not_found", "There is nothing to delete.")
    return json_response({"id": name, "object": "response", "deleted": True})


async def begin(request: Request, body: ResponseRequest) -> ResponseReply:
    """Check the request and let it wait for its turn; what is wrong with it is an error here."""
    service: Service = request.app.state.service
    store: ResponseStore = request.app.state.responses
    client: Client = request.state.client
    model = service.model
    model.check_name(body.model)
    ignored = body.ignored()
    check_receipt(model.llm, body)
    form = body.form()
    with form.errors():
        params = body.sampling_params(model.llm.default_params, form.given)
    before: Sequence[Mapping[str, Any]] = ()
    if body.previous_response_id is not None:
        kept = store.find(client, body.previous_response_id)
        if kept is None:
            raise store.missing(
                400,
                body.previous_response_id,
                "previous_response_id",
                "previous_response_not_found",
                "Send the whole conversation as input.",
            )
        before = kept.messages
    items = read_items(before, body.input)
    prompt = await service.encode(lambda: read_prompt(model.llm.tokenizer, body, items, model.context), "input")
    check_room(len(prompt.ids), params.max_tokens, model.context, "input", "max_output_tokens")

    def keep(response: Mapping[str, Any]) -> None:
        if body.keeps:
            store.keep(client, [*items.messages, answer_message(response["output"])], response)

    name, state = f"resp_{request.state.request_id}", {**request.scope["state"], "reads_cache": body.reads_cache}
    try:
        work, rules = await begin_answer(service, name, prompt, params, form, state, timed=bool(body.return_timings))
    except InvalidRequestError as error:
        raise renamed(error, body.names_of_tools()) from None
    return ResponseReply(model, work, body, ignored, rules, keep)


def read_prompt(tokenizer: Tokenizer, body: ResponseRequest, items: Items, context: int) -> ChatPrompt:
    """The prompt of a conversation, its instructions before it; CapacityError where it is clear that the context can't
    hold it.
    """
    system = [] if body.instructions is None else [{"role": "system", "content": body.instructions}]
    messages = [*system, *items.messages]
    try:
        return chat_prompt(
            tokenizer,
            messages,
            body.tool_use(),
            chat_template_kwargs=body.chat_template_kwargs,
            most_ids=context,
        )
    except InvalidRequestError as error:
        raise renamed(error, _names(items, len(system))) from None


def _names(items: Items, shift: int) -> list[tuple[str, str]]:
    """The items' names, where instructions stand before their messages; and that of all of them."""
    whole = ("messages", "input")
    if not shift:
        return [*items.names, whole]
    shifted = []
    for here, there in items.names:
        number, _, rest = here.removeprefix("messages[").partition("]")
        shifted.append((f"messages[{int(number) + shift}]{rest}", there))
    return [("messages[0].content", "instructions"), *shifted, whole]
