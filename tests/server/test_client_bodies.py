"""What other programs send to an OpenAI-compatible server by default: none of it is refused.

Bodies were recorded from the programs where a version is named, and else put together by what their public sources
send. Fields that a program sends only if its user asks for what they mean are not here: those that change an answer and
that this server lacks are errors.
"""

from typing import Any, NamedTuple

import openai
import pytest
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params

from cutaway.server.openai.chat_schema import ChatRequest
from cutaway.server.openai.completion_schema import CompletionRequest
from cutaway.server.openai.fields import HARMLESS, REFUSED, RequestBody
from support.http_server import RunningServer

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
MESSAGES: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
USAGE: Any = {"include_usage": True}


class Sent(NamedTuple):
    """One body, as a program sends it but for the model's name and the length of the answer."""

    program: str
    source: str  # a version that was recorded, or the file that was read
    fields: dict[str, Any]
    path: str = CHAT


SENT = [
    Sent("LangChain", "langchain-openai 1.7.4", {"messages": [{"content": "hi", "role": "user"}], "stream": False}),
    Sent(
        "LangChain, all that ChatOpenAI sets",
        "langchain-openai 1.7.4",
        {
            "messages": [{"content": "hi", "role": "user"}],
            "stream": True,
            "logprobs": True,
            "max_completion_tokens": 2,
            "n": 1,
            "seed": 1,
            "stop": ["x"],
            "temperature": 0.0,
            "top_logprobs": 2,
        },
    ),
    Sent(
        "LangChain in JavaScript, as LibreChat's agents use it",
        "@langchain/openai 1.5.8",
        {
            "messages": [{"role": "user", "content": "hi"}],
            "temperature": 1,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "user": "65f0c0ffee",
            "stream": True,
            "stream_options": USAGE,
        },
    ),
    Sent(
        "Vercel's AI SDK",
        "ai 6.0.326 with @ai-sdk/openai-compatible 2.0.92",
        {
            "max_tokens": 2,
            "temperature": 0,
            "top_p": 0.9,
            "stop": ["x"],
            "seed": 1,
            "messages": MESSAGES,
            "stream": True,
            "stream_options": USAGE,
        },
    ),
    Sent(
        "Vercel's AI SDK, completions",
        "ai 6.0.326 with @ai-sdk/openai-compatible 2.0.92",
        {
            "max_tokens": 2,
            "prompt": "user:\nhi\n\nassistant:\n",
            "stop": ["\nuser:"],
            "stream": True,
            "stream_options": USAGE,
        },
        COMPLETE,
    ),
    Sent(
        "LiteLLM",
        "litellm 1.110.2",
        {
            "messages": MESSAGES,
            "temperature": 0,
            "max_tokens": 2,
            "seed": 1,
            "stream": True,
            "stream_options": USAGE,
        },
    ),
    Sent("LiteLLM, completions", "litellm 1.110.2", {"prompt": "hi", "max_tokens": 2}, COMPLETE),
    Sent(
        "Aider",
        "Aider-AI/aider, aider/models.py, through LiteLLM",
        {"messages": MESSAGES, "temperature": 0, "stream": True},
    ),
    Sent(
        "Open WebUI, a chat",
        "open-webui/open-webui, backend/open_webui/routers/openai.py and utils/payload.py",
        {
            "stream": True,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "stream_options": USAGE,
            "temperature": 0.8,
            "top_p": 0.9,
            "min_p": 0.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            "seed": 0,
            "stop": ["###"],
            "logit_bias": {},
        },
    ),
    Sent(
        "Open WebUI, a title, from a model with a pipeline",
        "open-webui/open-webui, backend/open_webui/routers/openai.py",
        {
            "messages": [{"role": "user", "content": "### Task: a title"}],
            "stream": False,
            "user": {"name": "x", "id": "1", "email": "x@example.org", "role": "user"},
            "chat_id": "1",
            "metadata": {"task": "title_generation", "chat_id": "1"},
        },
    ),
    Sent(
        "Continue",
        "continuedev/continue, core/llm/openaiTypeConverters.ts",
        {
            "messages": MESSAGES,
            "max_tokens": 2,
            "temperature": 0.01,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "stream": True,
            "stop": None,
            "prediction": None,
            "stream_options": USAGE,
        },
    ),
    Sent(
        "Cline",
        "cline/cline, src/core/api/providers/openai.ts",
        {
            "messages": [
                {"role": "system", "content": "You are Cline."},
                {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "<env/>"}]},
                {"role": "assistant", "content": "Hello.", "tool_calls": None},
                {"role": "user", "content": [{"type": "text", "text": "go on"}]},
            ],
            "temperature": 0,
            "stream": True,
            "stream_options": USAGE,
        },
    ),
    Sent(
        "Zed",
        "zed-industries/zed, crates/open_ai/src/open_ai.rs",
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None},
                {"role": "user", "content": []},
                {"role": "assistant", "content": "Hello.", "tool_calls": [], "reasoning_content": "thought"},
                {"role": "user", "content": "go on"},
            ],
            "stream": True,
            "stream_options": USAGE,
            "max_completion_tokens": 2,
            "temperature": 1.0,
            "parallel_tool_calls": False,
            "prompt_cache_key": "thread",
        },
    ),
    Sent(
        "SillyTavern",
        "SillyTavern/SillyTavern, src/endpoints/backends/chat-completions.js",
        {
            "messages": [
                {"role": "system", "content": "Write one reply."},
                {"role": "system", "content": "[Start a new chat]"},
                {"role": "user", "content": "hi", "name": "You"},
            ],
            "temperature": 1,
            "max_tokens": 2,
            "stream": True,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "top_p": 1,
            "top_k": 0,
            "stop": [],
            "logit_bias": {},
            "n": 1,
        },
    ),
    Sent(
        "CodeCompanion",
        "vllm-project/vllm#10463, where messages with fields of its own were refused",
        {
            "messages": [
                {"role": "system", "content": "Help.", "id": 1947269257, "opts": {"visible": False}},
                {"role": "user", "content": "hi", "id": 2, "opts": {"visible": True}, "cycle": 1},
            ],
            "stream": True,
            "stream_options": USAGE,
        },
    ),
    Sent(
        "OpenAI's client, a whole answer given back as it was dumped",
        "openai 3.57.0, ChatCompletionMessage.model_dump()",
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": "Hello.",
                    "refusal": None,
                    "annotations": None,
                    "audio": None,
                    "function_call": None,
                    "tool_calls": None,
                },
                {"role": "user", "content": [{"type": "text", "text": "go", "prompt_cache_breakpoint": {}}]},
            ],
            "store": False,
            "service_tier": "auto",
            "safety_identifier": "x",
            "prompt_cache_options": {"mode": "implicit"},
        },
    ),
    Sent(
        "vLLM's benchmark",
        "vllm-project/vllm, vllm/benchmarks/lib/endpoint_request_func.py",
        {
            "prompt": "hi",
            "repetition_penalty": 1.0,
            "max_tokens": 2,
            "logprobs": None,
            "stream": True,
            "stream_options": USAGE,
            "ignore_eos": True,
        },
        COMPLETE,
    ),
    Sent(
        "programs that count tokens as they come from vLLM",
        "a dozen public repositories that have this line",
        {
            "messages": MESSAGES,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
    ),
    Sent(
        "lm-eval",
        "lm-eval 0.4.13, local-completions",
        {"prompt": [[504, 3575]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True},
        COMPLETE,
    ),
    Sent(
        "a client that writes out vLLM's defaults",
        "vLLM's extra fields of chats, not recorded",
        {
            "messages": MESSAGES,
            "frequency_penalty": 0.0,
            "logit_bias": None,
            "logprobs": False,
            "top_logprobs": 0,
            "max_tokens": None,
            "n": 1,
            "presence_penalty": 0.0,
            "response_format": None,
            "seed": None,
            "stop": [],
            "stream": False,
            "stream_options": None,
            "temperature": None,
            "top_p": None,
            "tools": None,
            "tool_choice": "none",
            "user": None,
            "best_of": None,
            "use_beam_search": False,
            "length_penalty": 1.0,
            "stop_token_ids": [],
            "min_tokens": 0,
            "skip_special_tokens": True,
            "echo": False,
            "add_generation_prompt": True,
            "continue_final_message": False,
            "chat_template": None,
            "chat_template_kwargs": None,
            "priority": 0,
            "return_tokens_as_token_ids": None,
        },
    ),
]


@pytest.mark.parametrize("sent", SENT, ids=[each.program for each in SENT])
def test_it_is_taken(server: RunningServer, sent: Sent) -> None:
    """And answered, with the usage where that is asked for."""
    short = (
        {} if {"max_tokens", "max_completion_tokens"} & {k for k, v in sent.fields.items() if v} else {"max_tokens": 2}
    )
    reply = server.post(sent.path, {"model": "smollm2", **sent.fields, **short})
    assert reply.status == 200, reply.body
    if not sent.fields.get("stream"):
        assert reply.json["usage"]["completion_tokens"] <= 2
        return
    *chunks, done = reply.events
    assert done == "[DONE]"
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert len(usages) == bool(sent.fields.get("stream_options"))


@pytest.mark.parametrize(
    ("params", "body"),
    [(chat_params, ChatRequest), (completion_params, CompletionRequest)],
    ids=["chats", "completions"],
)
def test_every_parameter_of_openais_client_is_known(params: Any, body: type[RequestBody]) -> None:
    """It is a field, or ignored, or refused by its own words; none is answered like a misspelling."""
    names = set(params.CompletionCreateParamsBase.__annotations__)
    assert len(names) > 15, openai.__version__
    assert names <= body.model_fields.keys() | HARMLESS | REFUSED.keys()


def test_what_is_ignored_of_a_stream_is_told(server: RunningServer) -> None:
    options = {"include_usage": False, "continuous_usage_stats": True, "include_obfuscation": False}
    for ask in (server.chat, server.complete):
        reply = ask(stream=True, stream_options=options, return_parameters=True, user="x", max_tokens=1)
        assert sorted(reply.events[-2]["cutaway"]["ignored"]) == ["stream_options.continuous_usage_stats", "user"]


def test_no_likeliest_tokens_are_none_without_logprobs(server: RunningServer) -> None:
    """top_logprobs: 0 asks for what happens anyway; another number wants logprobs."""
    assert server.chat(top_logprobs=0, max_tokens=1).json["choices"][0]["logprobs"] is None
    refused = server.chat(top_logprobs=1, max_tokens=1)
    assert (refused.status, refused.error["param"]) == (400, "top_logprobs")
