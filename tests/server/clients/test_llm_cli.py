"""Simon Willison's `llm`, unmodified, told of the server by its file of extra OpenAI models: prompts, streams, log."""

import json
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM, SamplingParams
from support.clients import needs_clients, run
from support.http_server import RunningServer

pytestmark = needs_clients

MODELS = """
- model_id: cutaway
  model_name: smollm2
  api_base: "{address}/v1"
- model_id: cutaway-completion
  model_name: smollm2
  api_base: "{address}/v1"
  completion: true
"""
QUESTION = "What is gravity?"
OPTIONS = ("-o", "temperature", "0.7", "-o", "seed", "5", "-o", "max_tokens", "24")
PARAMS: dict[str, Any] = {"temperature": 0.7, "seed": 5, "max_tokens": 24}


class Cli:
    """The program, with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it prints."""
        command = ["-m", "llm", *arguments]
        return run(command, folder=self.folder, stdin=stdin, LLM_USER_PATH=self.folder).stdout

    def log(self) -> list[Any]:
        """Its log."""
        found: list[Any] = json.loads(self("logs", "--json", "-n", "0"))
        return found


@pytest.fixture
def cli(server: RunningServer, tmp_path: Path) -> Cli:
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(address=server.url), "utf-8")
    return Cli(tmp_path)


def answer(llm: LLM, *messages: dict[str, str], **fields: Any) -> Any:
    return llm.chat(list(messages), SamplingParams(**{**PARAMS, **fields}), use_tqdm=False)[0]


def test_a_prompt_whole_and_as_a_stream_and_the_log(cli: Cli, llm: LLM) -> None:
    assert "OpenAI Chat: cutaway" in cli("models")
    want = answer(llm, {"role": "user", "content": QUESTION})
    assert cli("-m", "cutaway", QUESTION, *OPTIONS, "--no-stream") == want.outputs[0].text + "\n"
    assert cli("-m", "cutaway", QUESTION, *OPTIONS) == want.outputs[0].text + "\n"
    log = cli.log()
    assert [entry["response"] for entry in log] == [want.outputs[0].text] * 2
    for entry in log:
        assert (entry["model"], entry["prompt"]) == ("cutaway", QUESTION)
        assert entry["input_tokens"] == len(want.prompt_token_ids)
        assert entry["output_tokens"] == len(want.outputs[0].token_ids)


def test_a_conversation(cli: Cli, llm: LLM) -> None:
    """With a system prompt, and gone on with in another process: the log is the history."""
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "My name is Ada."}]
    first = answer(llm, *turns).outputs[0].text
    assert cli("-m", "cutaway", "-s", "Be brief.", "My name is Ada.", *OPTIONS) == first + "\n"
    turns += [{"role": "assistant", "content": first}, {"role": "user", "content": "What is my name?"}]
    second = answer(llm, *turns).outputs[0].text
    assert cli("-c", "What is my name?", *OPTIONS) == second + "\n"
    assert len({entry["conversation_id"] for entry in cli.log()}) == 1


def test_its_chat(cli: Cli, llm: LLM) -> None:
    """Lines from standard input, as a person types them."""
    first = answer(llm, {"role": "user", "content": "Name a colour."})
    said = cli("chat", "-m", "cutaway", *OPTIONS, stdin="Name a colour.\nquit\n")
    assert first.outputs[0].text in said
    (entry,) = cli.log()
    assert (entry["prompt"], entry["response"]) == ("Name a colour.", first.outputs[0].text)


def test_a_completion(cli: Cli, llm: LLM) -> None:
    want = llm.generate("The sea is", SamplingParams(**PARAMS), use_tqdm=False)[0].outputs[0].text
    for stream in ([], ["--no-stream"]):
        assert cli("-m", "cutaway-completion", "The sea is", *OPTIONS, *stream) == want + "\n"
