"""``/tokenizer_info``: what the tokenizer is besides ids and text, by vLLM's names.

In: nothing. Out: the texts of BOS and EOS, the chat template. Evaluation harnesses ask it before they use
``/tokenize`` in place of a tokenizer of their own.
"""

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.route import Route
from cutaway.server.http.write_json import json_response
from cutaway.server.service import ServedModel

router = APIRouter(tags=["tokens"], route_class=Route)


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request) -> Response:
    """Texts of control tokens, and the chat template; null is what there is none of."""
    model: ServedModel = request.app.state.service.model
    tokenizer = model.llm.tokenizer

    def text(token: int | None) -> str | None:
        return None if token is None else tokenizer.piece(token)

    return json_response(
        {
            "bos_token": text(tokenizer.bos_id),
            "eos_token": text(tokenizer.eos_id),
            "chat_template": tokenizer.chat_template,
        }
    )
