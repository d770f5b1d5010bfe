"""What LangChain's ChatOpenAI gets from a server, as JSON. Argument: the address, ending with /v1."""

import asyncio
import json
import sys
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

QUESTION = "What is gravity?"
ADDRESS = sys.argv[1]


def model(**fields: Any) -> ChatOpenAI:
    return ChatOpenAI(model="smollm2", base_url=ADDRESS, api_key="none", max_retries=0, **fields)


def shown(message: BaseMessage) -> dict[str, Any]:
    assert isinstance(message, AIMessage)
    return {"text": message.content, "usage": message.usage_metadata, "metadata": message.response_metadata}


def joined(chunks: list[AIMessageChunk]) -> dict[str, Any]:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return {**shown(whole), "chunks": len(chunks)}


async def asynchronously(chat: ChatOpenAI) -> dict[str, Any]:
    """The same as at once, and as a stream; and three at a time."""
    whole, *several = await asyncio.gather(*(chat.ainvoke(QUESTION) for _ in range(3)))
    streamed = [chunk async for chunk in chat.astream(QUESTION)]
    return {"invoke": shown(whole), "several": [shown(each) for each in several], "stream": joined(streamed)}


def overflow() -> dict[str, Any]:
    try:
        model().invoke("too long " * 2000)
    except ContextOverflowError as error:
        return {"class": type(error).__name__, "message": str(error)}
    raise AssertionError("it is not refused")


seeded = model(temperature=0.7, seed=5, max_tokens=24)
chain = ChatPromptTemplate([("system", "Answer in {language}."), ("user", "{question}")]) | seeded | StrOutputParser()
print(
    json.dumps(
        {
            "invoke": shown(seeded.invoke(QUESTION)),
            "another_seed": shown(model(temperature=0.7, seed=6, max_tokens=24).invoke(QUESTION)),
            "stream": joined(list(model(temperature=0.7, seed=5, max_tokens=24, stream_usage=True).stream(QUESTION))),
            "batch": [shown(each) for each in seeded.batch([QUESTION, "Name a colour.", "Count to three."])],
            "logprobs": shown(model(temperature=0, max_tokens=6, logprobs=True, top_logprobs=3).invoke(QUESTION)),
            "streamed_logprobs": joined(
                list(model(temperature=0, max_tokens=6, logprobs=True, top_logprobs=3).stream(QUESTION))
            ),
            "stop": shown(model(temperature=0, max_tokens=60).invoke(QUESTION, stop=["."])),
            "conversation": shown(
                seeded.invoke(
                    [
                        SystemMessage("Be brief."),
                        HumanMessage("My name is Ada."),
                        AIMessage("Hello, Ada."),
                        HumanMessage("What is my name?"),
                    ]
                )
            ),
            "chain": chain.invoke({"language": "French", "question": QUESTION}),
            "async": asyncio.run(asynchronously(seeded)),
            "overflow": overflow(),
        }
    )
)
