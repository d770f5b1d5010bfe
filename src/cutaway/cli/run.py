"""``cutaway run``: one question, one answer, streamed.

In: a model, a prompt (argument, file or standard input), sampling parameters. Out: the answer on standard output as it
is generated, statistics on standard error; or one JSON object.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.console import INTERRUPTED, CompileProgress, FetchProgress, error_console
from cutaway.cli.models import ModelName
from cutaway.errors import InvalidRequestError
from cutaway.ops.numerics import NUMERICS_VERSION

LARGEST_PROMPT = 64 << 20  # bytes read from a file or a pipe


def run(
    model: ModelName,
    prompt: Annotated[
        str | None, typer.Argument(help="What to say; read from standard input where it is a pipe.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete the text as it is, without the chat template.")] = False,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token; 1 the model's own spread.")] = 0.7,
    top_k: Annotated[int, typer.Option(help="Only the k most likely tokens; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Only the most likely tokens that reach this probability.")] = 0.9,
    min_p: Annotated[
        float, typer.Option(help="Only tokens of at least this part of the best one's probability.")
    ] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help="For the same answer again; fresh and shown where none is given.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(help="Tokens of the answer at most; a small model may not find an end by itself.")
    ] = 1024,
    context: Annotated[
        int | None, typer.Option(help="Positions of prompt and answer; default, the model's, up to 8192.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors that this process may use.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Ask a model something."""
    from cutaway.sampling.params import SamplingParams
    from cutaway.tokenizer.legal_text import check_legal

    params = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, max_tokens=max_tokens
    )
    text = _read_prompt(prompt, file)
    if not text:
        raise InvalidRequestError("the prompt is empty; it must have at least 1 character. Write something.", "prompt")
    check_legal(text, "the prompt")

    from cutaway.engine.compile import compilations
    from cutaway.engine.llm import LLM

    console = error_console()
    with FetchProgress(console) as fetching:
        compiling = CompileProgress(console, fetching)
        with compilations(compiling):
            try:
                llm = LLM(model, threads=threads, context=context, progress=fetching)
                chat = [{"role": "user", "content": text}]
                stream = llm.stream(llm.tokenizer.encode(text) if raw else llm.tokenizer.encode_chat(chat), params)
                interrupted = False
                try:
                    for delta in stream:
                        compiling.done()  # the first token has compiled what was left
                        if not as_json:
                            _say(delta.text)
                except KeyboardInterrupt:
                    interrupted = True
            finally:
                compiling.abandon()
    output = stream.output()
    if as_json:
        _say(json.dumps(_report(output, llm, params, interrupted), ensure_ascii=False) + "\n")
    else:
        _say("\n")
        console.print(_summary(output, interrupted), style="dim", soft_wrap=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _read_prompt(prompt: str | None, file: Path | None) -> str:
    """The prompt's text from the one place that was named."""
    if prompt is not None and file is not None:
        raise InvalidRequestError("there are a prompt and --file; give one of them.", "prompt")
    if file is not None:
        try:
            with file.open("rb") as stream:
                return _decode(stream.read(LARGEST_PROMPT + 1), str(file))
        except OSError as error:
            raise InvalidRequestError(
                f"--file {str(file)!r} can't be read ({error.strerror}). Check the path.", "file"
            ) from error
    if prompt is None or prompt == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise InvalidRequestError(
                'there is no prompt. Write it behind the model\'s name: cutaway run smollm2 "Hello", or pipe it in.',
                "prompt",
            )
        return _decode(sys.stdin.buffer.read(LARGEST_PROMPT + 1), "standard input")
    return prompt


def _decode(data: bytes, origin: str) -> str:
    if len(data) > LARGEST_PROMPT:
        raise InvalidRequestError(f"{origin} has more than {LARGEST_PROMPT} bytes, the limit of a prompt.", "prompt")
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{origin} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}.", "prompt"
        ) from error


def _summary(output: Any, interrupted: bool) -> str:
    numbers = output.statistics
    ending = (
        "interrupted"
        if interrupted
        else {"stop": "end of answer", "length": "length limit", None: "no token"}[output.outputs[0].finish_reason]
    )
    return (
        f"{numbers.prompt_tokens} prompt tokens in {numbers.prefill_seconds:.2f} s, {numbers.prefill_rate:.0f} tok/s · "
        f"{numbers.generated_tokens} tokens at {numbers.decode_rate:.0f} tok/s · {ending} · seed {output.seed}"
    )


def _report(output: Any, llm: Any, params: Any, interrupted: bool) -> dict[str, Any]:
    completion, numbers = output.outputs[0], output.statistics
    return {
        "model": llm.model.name,
        "numerics_version": NUMERICS_VERSION,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "prompt_token_ids": output.prompt_token_ids,
        "finish_reason": "interrupted" if interrupted else completion.finish_reason,
        "seed": output.seed,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "max_tokens": params.max_tokens,
        "context": llm.runner.context,
        "threads": llm.runner.team.size,
        "prompt_tokens": numbers.prompt_tokens,
        "generated_tokens": numbers.generated_tokens,
        "prefill_seconds": round(numbers.prefill_seconds, 6),
        "decode_seconds": round(numbers.decode_seconds, 6),
        "prefill_tokens_per_second": round(numbers.prefill_rate, 1),
        "decode_tokens_per_second": round(numbers.decode_rate, 1),
    }
