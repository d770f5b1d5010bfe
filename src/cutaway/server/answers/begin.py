"""A conversation's answer waits for its turn, the form that it must have enforced: for any API of conversations.

In: the prompt, parameters, the form that was asked for. Out: the engine's work, and how its answers are read.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from cutaway.engine.watched import Tapping
from cutaway.errors import InvalidRequestError
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.structured_outputs import FIELD
from cutaway.server.answers.forms import blamed, is_written, with_form
from cutaway.server.answers.prompt import AnswerRules, ChatPrompt
from cutaway.server.openai.form_fields import AskedForm
from cutaway.server.service import Service
from cutaway.server.work import Work

TOOLS_FORM: Final = AskedForm(None, f"{FIELD}.grammar", "tools")
"""The grammar of calls: whatever is wrong with it is in the tools."""


async def begin_answer(
    service: Service,
    name: str,
    prompt: ChatPrompt,
    params: SamplingParams,
    form: AskedForm,
    state: Mapping[str, Any],
    taps: Tapping | None = None,
    timed: bool = False,
) -> tuple[Work, AnswerRules]:
    """Let the answer wait. state: of the HTTP request. taps: what is to be seen of it. timed: have its steps run timed.

    Errors name a tool's schema as OpenAI's chats do.
    """
    model, use = service.model.llm, prompt.rules.use
    with form.errors():
        rules = prompt.rules
        if is_written(rules, params.structured_outputs):
            write = partial(with_form, model.tokenizer, rules, params)
            params, rules = await service.check_form(write, "tools" if use.tools else form.ours)
        else:
            params, rules = with_form(model.tokenizer, rules, params)
    errors = TOOLS_FORM.errors if use.tools else form.errors
    with errors():
        try:
            work = await service.begin(name, [prompt.ids], params, state, prompt.shown_ids, taps, errors, timed)
        except InvalidRequestError as error:
            if not (use.tools and (error.field or "").startswith(FIELD)):
                raise
            raise await asyncio.to_thread(blamed, model.requests.grammars, rules, error) from None
    return work, rules
