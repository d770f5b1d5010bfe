"""``/tokenize``, ``/detokenize``, ``/apply-template``: the model's tokenizer and chat template, without the model.

In: texts, ids or messages, in the shapes of vLLM and llama.cpp. Out: ids, text.
"""

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response
from pydantic import Field

from cutaway.sampling.params_checks import is_integer, shown
from cutaway.server.http.errors import ApiError
from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.openai.chat_prompt import ChatFields, TemplateFields, chat_ids
from cutaway.server.openai.fields import RequestBody
from cutaway.server.service import ServedModel
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
    model = _model(request, body)
    given = {name: value for name in ("prompt", "content", "messages") if (value := getattr(body, name)) is not None}
    if len(given) != 1:
        there = " and ".join(given) or "none of them"
        raise ApiError(
            400, f"there is {there}; it must be one of prompt, content and messages.", next(iter(given), "prompt")
        )
    tokenizer = model.llm.tokenizer
    if body.messages is not None:
        ids = await asyncio.to_thread(chat_ids, tokenizer, body.messages, body)
    else:
        ((name, text),) = given.items()
        check_legal(text, name)
        add_bos = False if body.add_special_tokens is False else None
        ids = await asyncio.to_thread(
            lambda: tokenizer.encode(text, parse_special=bool(body.parse_special), add_bos=add_bos)
        )
    reply: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": ids}
    if body.return_token_strs:
        reply["token_strs"] = [tokenizer.piece(token) for token in ids]
    return json_response(reply)


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeRequest) -> Response:
    """The text of ids."""
    model = _model(request, body)
    tokenizer = model.llm.tokenizer
    for number, token in enumerate(body.tokens):
        if not is_integer(token) or not 0 <= token < tokenizer.vocab_size:
            place = f"tokens[{number}]"
            raise ApiError(
                400,
                f"{place} is {shown(token)}; it must be an integer from 0 to {tokenizer.vocab_size - 1}. Use the ids "
                "of this model's own tokenizer.",
                place,
                "invalid_value",
            )
    text = await asyncio.to_thread(lambda: tokenizer.decode(body.tokens, skip_special=bool(body.skip_special_tokens)))
    return json_response({"prompt": text, "content": text})


@router.post("/apply-template")
async def apply_template(request: Request, body: ChatFields) -> Response:
    """The text that the model's chat template makes of a conversation."""
    model = _model(request, body)
    tokenizer = model.llm.tokenizer
    ids = await asyncio.to_thread(chat_ids, tokenizer, body.messages, body)
    return json_response({"prompt": tokenizer.decode(ids, skip_special=False)})


def _model(request: Request, body: RequestBody) -> ServedModel:
    model: ServedModel = request.app.state.service.model
    model.check_name(body.model)
    body.ignored()
    return model
