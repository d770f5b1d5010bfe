"""``cutaway trace``: an answer, with tensors of its computation in a folder.

In: a model, a prompt, the names of tensors. Out: the answer; ``tensors.safetensors`` and ``trace.jsonl``.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.console import INTERRUPTED, error_console, first_use
from cutaway.cli.missing_template import missing_template_told
from cutaway.cli.models import ModelName
from cutaway.cli.options import (
    AdvisedMinP,
    AdvisedTemperature,
    AdvisedTopK,
    AdvisedTopP,
    ChatTemplate,
    Context,
    IgnoreEos,
    KVDtype,
    MaxTokens,
    Seed,
    System,
    Threads,
    with_advice,
)
from cutaway.cli.prompt import read_prompt
from cutaway.errors import InvalidRequestError

DEFAULT_TOKENS = 32
"""Fewer than for a mere answer: each is computed open, and has rows in the folder."""


def trace(
    model: ModelName,
    prompt: Annotated[
        str | None, typer.Argument(help="What to say; read from standard input where it is a pipe.")
    ] = None,
    tap: Annotated[
        list[str] | None,
        typer.Option(
            help="A tensor, as layers.3.attention, layers.*.resid@generated or logits; several in turn. docs/taps.md "
            "has the names."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to be written; it must not be there.")] = Path(
        "trace"
    ),
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete the text as it is, without the chat template.")] = False,
    system: System = None,
    chat_template: ChatTemplate = None,
    temperature: AdvisedTemperature = None,
    top_k: AdvisedTopK = None,
    top_p: AdvisedTopP = None,
    min_p: AdvisedMinP = None,
    seed: Seed = None,
    max_tokens: MaxTokens = DEFAULT_TOKENS,
    ignore_eos: IgnoreEos = False,
    context: Context = None,
    threads: Threads = None,
    kv_dtype: KVDtype = "f16",
    max_tap_bytes: Annotated[str, typer.Option(help="More than this is refused.")] = "256MiB",
) -> None:
    """Ask a model something, and keep tensors of how it answers."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from dataclasses import asdict

    from cutaway.audit.taps.request import TapRequest
    from cutaway.audit.taps.results import Taps
    from cutaway.audit.trace import new_folder, write_trace
    from cutaway.memory.byte_size import parse_bytes
    from cutaway.ops.numerics import NUMERICS_VERSION
    from cutaway.sampling.params import SamplingParams
    from cutaway.tokenizer.legal_text import check_legal

    request = TapRequest(*(tap or ()))
    limit = parse_bytes(max_tap_bytes, "max_tap_bytes")
    given = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "max_tokens": max_tokens,
        "ignore_eos": ignore_eos,
    }
    SamplingParams(**with_advice(given, {}))  # what is wrong with them is told before anything is loaded
    if raw and system is not None:
        raise InvalidRequestError("there are --system and --raw; a raw text has no system message. Leave one.", "raw")
    if raw and chat_template is not None:
        raise InvalidRequestError("there are --chat-template and --raw; a raw text has no template. Leave one.", "raw")
    text = read_prompt(prompt, file, "trace")
    if not text:
        raise InvalidRequestError("the prompt is empty; it must have at least 1 character. Write something.", "prompt")
    check_legal(text, "the prompt")

    from cutaway.engine.llm import LLM

    console = error_console()
    with new_folder(out) as folder:
        try:
            with first_use(console) as (fetching, compiling), missing_template_told("add --raw"):
                llm = LLM(
                    model,
                    threads=threads,
                    max_model_len=context,
                    kv_dtype=kv_dtype,
                    chat_template=chat_template,
                    needs_chat=not raw,
                    progress=fetching,
                    max_tap_bytes=limit,
                )
                params = SamplingParams(**with_advice(given, llm.default_params))
                if raw:
                    stream = llm.stream(text, params, taps=request)
                else:
                    instruction = [{"role": "system", "content": system}] if system else []
                    messages = [*instruction, {"role": "user", "content": text}]
                    stream = llm.stream_chat(messages, params, taps=request)
                num_prompt = len(stream.prompt_token_ids)
                plan = request.plan(llm.runner, num_prompt, min(max_tokens, llm.runner.context - num_prompt))
                console.print(f"taps: {plan.describe()}; {plan.num_bytes:,} bytes at most", style="dim", soft_wrap=True)
                for delta in stream:
                    compiling.done()
                    sys.stdout.write(delta.text)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        sys.stdout.write("\n")
        output = stream.output()
        assert isinstance(output.taps, Taps)
        completion = output.outputs[0]
        size = write_trace(
            folder,
            {
                "model": llm.model.name,
                "numerics_version": NUMERICS_VERSION,
                "taps": list(request.taps),
                "parameters": {**asdict(params), "seed": output.seed},
                "seed": output.seed,
                "prompt_token_ids": output.prompt_token_ids,
                "token_ids": completion.token_ids,
                "text": completion.text,
                "finish_reason": completion.finish_reason,
                "kv_dtype": kv_dtype,
            },
            output.taps,
        )
    console.print(
        f"{out}: {len(output.taps):,} tensors, {size:,} bytes · seed {output.seed}", style="dim", soft_wrap=True
    )
