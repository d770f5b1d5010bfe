"""``cutaway trace``: an answer, with tensors of its computation in a folder, or explained.

In: a model, a prompt, the names of tensors. Out: the answer; ``tensors.safetensors`` and ``trace.jsonl``; its
explanation in the terminal, as data, as one HTML file.
"""

import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from cutaway.cli.prompt import read_question
from cutaway.cli.report import AskedExplanation, Explain, ExplanationFile, Places, Report

if TYPE_CHECKING:
    from cutaway.audit.taps.request import TapRequest
    from cutaway.engine.llm import LLM
    from cutaway.engine.outputs import RequestOutput
    from cutaway.sampling.params import SamplingParams

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
    report: Report = None,
    explanation: ExplanationFile = None,
    explain: Explain = False,
    at: Places = None,
) -> None:
    """Ask a model something, and keep tensors of how it answers, or have the answer explained."""
    # Imported here: the other commands shall not wait for the compiler to load.
    from cutaway.audit.taps.request import TapRequest
    from cutaway.audit.trace import new_folder
    from cutaway.memory.byte_size import parse_bytes
    from cutaway.sampling.params import SamplingParams

    asked = AskedExplanation(report, explanation, explain, tuple(at or ()))
    request = TapRequest(*(tap or ())) if tap or not asked.wanted else None
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
    # What is wrong with them is told before anything is loaded.
    asked.check(SamplingParams(**with_advice(given, {})), None if request is None else out)
    text = read_question(prompt, file, "trace", raw=raw, system=system, chat_template=chat_template)

    from cutaway.engine.llm import LLM

    console = error_console()
    with nullcontext() if request is None else new_folder(out) as folder:
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
                # Open steps have no clocks.
                with asked.watching(llm, with_ledger=request is None) as finish:
                    if raw:
                        stream = llm.stream(text, params, taps=request)
                    else:
                        instruction = [{"role": "system", "content": system}] if system else []
                        messages = [*instruction, {"role": "user", "content": text}]
                        stream = llm.stream_chat(messages, params, taps=request)
                    num_prompt = len(stream.prompt_token_ids)
                    asked.check_memory(llm, num_prompt, params)
                    if request is not None:
                        plan = request.plan(llm.runner, num_prompt, min(max_tokens, llm.runner.context - num_prompt))
                        said = f"taps: {plan.describe()}; {plan.num_bytes:,} bytes at most"
                        console.print(said, style="dim", soft_wrap=True)
                    for delta in stream:
                        compiling.done()
                        sys.stdout.write(delta.text)
                        sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        sys.stdout.write("\n")
        sys.stdout.flush()
        output = stream.output()
        if folder is not None:
            assert request is not None
            size = _write(folder, llm, output, params, request, kv_dtype)
    if folder is not None:
        assert output.taps is not None
        said = f"{out}: {len(output.taps):,} tensors, {size:,} bytes · seed {output.seed}"
        console.print(said, style="dim", soft_wrap=True)
    finish(output, params, console)


def _write(
    folder: Path, llm: "LLM", output: "RequestOutput", params: "SamplingParams", request: "TapRequest", kv_dtype: str
) -> int:
    """Both files; the bytes of the tensors."""
    from cutaway.audit.taps.results import Taps
    from cutaway.audit.trace import write_trace
    from cutaway.ops.numerics import NUMERICS_VERSION

    assert isinstance(output.taps, Taps)
    completion = output.outputs[0]
    return write_trace(
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
