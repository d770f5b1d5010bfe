"""``/tokenize``, ``/detokenize``, ``/apply-template``: the model's tokenizer and chat template, without the model.

In: texts, ids or messages, in the shapes of vLLM and llama.cpp. Out: ids, text.
"""

from typing import Any

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response
from pydantic import Field

from cutaway.server.answers.tools import ToolUse
from cutaway.server.http.errors import ApiError
from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.openai.chat_prompt import ChatFields, TemplateFields, read_chat
from cutaway.server.openai.fields import RequestBody
from cutaway.server.openai.prompts import check_ids
from cutaway.server.openai.tool_fields import read_tools
from cutaway.server.service import ServedModel, Service
from cutaway.tokenizer.legal_text import check_legal

router = APIRouter(tags=["tokens"], route_class=Route)


class TokenizeRequest(TemplateFields):
    """A text, or a conversation."""

    prompt: str | None = Field(None, description="The text.")
    content: str | None = Field(None, description="llama.cpp's name for it.")
    messages: list[dict[str, Any]] | None = Field(None, min_length=1, description="In place of a text: a conversation.")
    add_special_tokens: bool | None = Field(None, description="false: without BOS. Else as the model wants it.")
    parse_special: bool | None = Field(
        None, description="Turn the spelling of a control token into the token. Of trusted text only; default, false."
    )
    return_token_strs: bool | None = Field(None, description="Add the text of each token.")


class DetokenizeRequest(RequestBody):
    """Ids."""

    tokens: list[Any] = Field(description="The ids.", json_schema_extra={"items": {"type": "integer", "minimum": 0}})
    skip_special_tokens: bool | None = Field(None, description="Leave control tokens out; default, false.")


@router.post("/tokenize")
async def tokenize(request: Request, body: TokenizeRequest) -> Response:
    """Ids of a text or a conversation."""
    service: Service = request.app.state.service
    model = _model(service, body)
    given = {name: value for name in ("prompt", "content", "messages") if (value := getattr(body, name)) is not None}
    if len(given) != 1:
        there = " and ".join(given) or "none of them"
        raise ApiError(
            400, f"there is {there}; it must be one of prompt, content and messages.", next(iter(given), "prompt")
        )
    tokenizer = model.llm.tokenizer
    ((name, text),) = given.items()

    def encoded() -> list[int]:
        if (conversation := body.messages) is not None:
            return read_chat(tokenizer, conversation, ToolUse(read_tools(body.tools)), body).ids
        check_legal(text, name)
        add_bos = False if body.add_special_tokens is False else None
        return tokenizer.encode(text, parse_special=bool(body.parse_special), add_bos=add_bos)

    def reply() -> Response:
        ids = encoded()
        found: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": ids}
        if body.return_token_strs:
            found["token_strs"] = [tokenizer.piece(token) for token in ids]
        return json_response(found)

    return await service.encode(reply, name)


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeRequest) -> Response:
    """The text of ids."""
    service: Service = request.app.state.service
    tokenizer = _model(service, body).llm.tokenizer
    most = service.settings.max_body_size

    def reply() -> Response:
        check_ids(body.tokens, tokenizer.vocab_size, "tokens")
        size = sum(len(tokenizer.token_bytes(token)) for token in body.tokens)
        if size > most:  # a few ids may stand for much text, which is kept until the client has read it
            raise ApiError(
                400,
                f"tokens has {len(body.tokens)} ids of {size} bytes of text together; the server decodes {most} at "
                "most. Send them in several requests, or raise --max-body-size.",
                "tokens",
                "invalid_value",
            )
        text = tokenizer.decode(body.tokens, skip_special=bool(body.skip_special_tokens))
        return json_response({"prompt": text, "content": text})

    return await service.encode(reply, "tokens")


@router.post("/apply-template")
async def apply_template(request: Request, body: ChatFields) -> Response:
    """The text that the model's chat template makes of a conversation."""
    service: Service = request.app.state.service
    tokenizer = _model(service, body).llm.tokenizer
    use = ToolUse(read_tools(body.tools))
    text = await service.encode(
        lambda: tokenizer.decode(read_chat(tokenizer, body.messages, use, body).ids, skip_special=False), "messages"
    )
    return json_response({"prompt": text})


def _model(service: Service, body: RequestBody) -> ServedModel:
    model = service.model
    model.check_name(body.model)
    body.ignored()
    return model
