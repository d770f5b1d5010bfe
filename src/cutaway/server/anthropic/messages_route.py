"""``/v1/messages`` and ``/v1/messages/count_tokens``: a conversation, answered or counted.

In: Anthropic's request. Out: its reply, whole or as events.
"""

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.errors import InvalidRequestError
from cutaway.server.answers.begin import begin_answer
from cutaway.server.answers.beside import check_receipt
from cutaway.server.answers.prompt import ChatPrompt, chat_prompt
from cutaway.server.anthropic.messages import read_conversation
from cutaway.server.anthropic.reply import MessageReply
from cutaway.server.anthropic.schema import CountRequest, MessagesRequest, PromptFields
from cutaway.server.anthropic.tools import names_of_tools, read_tool_use
from cutaway.server.http.error_schema import AnthropicErrorReply, described
from cutaway.server.http.errors import ApiError, renamed
from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.openai.prompts import check_room
from cutaway.server.respond import STREAMED, respond
from cutaway.server.service import Service
from cutaway.tokenizer.tokenizer import Tokenizer

router = APIRouter(tags=["anthropic"], route_class=Route, responses=described(AnthropicErrorReply))


@router.post("/v1/messages", responses=STREAMED)
async def messages(request: Request, body: MessagesRequest) -> Response:
    """Answer a conversation."""
    return await respond(request, begin(request, body))


@router.post("/v1/messages/count_tokens")
async def count_tokens(request: Request, body: CountRequest) -> Response:
    """The number of tokens of a conversation."""
    prompt = await _prompt(request.app.state.service, body, None)
    return json_response({"input_tokens": len(prompt.ids)})


async def begin(request: Request, body: MessagesRequest) -> MessageReply:
    """Check the request and let it wait for its turn; what is wrong with it is an error here."""
    service: Service = request.app.state.service
    model = service.model
    ignored = body.ignored()
    check_receipt(model.llm, body)
    form = body.form()
    with form.errors():
        params = body.sampling_params(model.llm.default_params, form.given)
    prompt = await _prompt(service, body, model.context)
    check_room(len(prompt.ids), None, model.context, "messages")
    name, state = f"msg_{request.state.request_id}", request.scope["state"]
    try:
        work, rules = await begin_answer(service, name, prompt, params, form, state, timed=bool(body.return_timings))
    except InvalidRequestError as error:
        raise renamed(error, names_of_tools(prompt.rules.use)) from None
    return MessageReply(model, work, body, ignored, rules)


async def _prompt(service: Service, body: PromptFields, context: int | None) -> ChatPrompt:
    model = service.model
    model.check_name(body.model)
    body.ignored()
    return await service.encode(lambda: read_prompt(model.llm.tokenizer, body, context), "messages")


def read_prompt(tokenizer: Tokenizer, body: PromptFields, context: int | None) -> ChatPrompt:
    """The prompt of a conversation; CapacityError where it is clear that the context can't hold it."""
    thinks = body.thinks()
    variables = dict(body.chat_template_kwargs or {})
    if thinks is not None:
        if thinks and tokenizer.answer_format.reasoning is None:
            raise ApiError(
                400,
                f"thinking.type is {body.thinking['type']!r}, and this model does not think before it answers. Leave "
                "thinking out.",
                "thinking.type",
                "unsupported_parameter",
            )
        variables.setdefault("enable_thinking", thinks)
    use = read_tool_use(body.tools, body.tool_choice)
    conversation = read_conversation(body.system, body.messages)
    try:
        return chat_prompt(
            tokenizer,
            conversation.messages,
            use,
            chat_template_kwargs=variables or None,
            most_ids=context,
        )
    except InvalidRequestError as error:
        raise renamed(error, conversation.names()) from None
