"""``cutaway trace``: an answer, with tensors of its computation in a folder, or explained.

In: a model, a prompt, the names of tensors. Out: the answer; ``tensors.safetensors`` and ``trace.jsonl``; its
explanation in the terminal, as data, as one HTML file.
"""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.ask import ask, listen
from cutaway.cli.closing_line import closing_line
from cutaway.cli.console import INTERRUPTED, error_console, first_use, say
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
    Prompt,
    PromptFile,
    Raw,
    Seed,
    System,
    Threads,
    with_advice,
)
from cutaway.cli.prompt import read_question
from cutaway.cli.report import AskedExplanation, Explain, ExplanationFile, Places, Report
from cutaway.errors import InvalidRequestError

if TYPE_CHECKING:
    from cutaway.audit.taps.request import TapRequest
    from cutaway.engine.llm import LLM
    from cutaway.engine.outputs import RequestOutput
    from cutaway.sampling.params import SamplingParams

DEFAULT_TOKENS = 32
"""Fewer than for a mere answer: each is computed open, and has rows in the folder."""

TapNames = Annotated[
    list[str] | None,
    typer.Option(
        help="A tensor, as layers.3.attention, layers.*.resid@generated or logits; several in turn. docs/taps.md has "
        "the names."
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to be written; it must not be there.")]


def trace(
    model: ModelName,
    prompt: Prompt = None,
    tap: TapNames = None,
    out: Out = Path("trace"),
    file: PromptFile = None,
    raw: Raw = False,
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
    request = TapRequest(*tap) if tap else None
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
    if request is None and not asked.wanted:
        raise InvalidRequestError(
            "there is no tap, and no explanation is wanted. Name a tensor, as in --tap 'layers.*.resid', or add "
            "--explain, --report FILE or --explanation FILE.",
            "tap",
        )
    text = read_question(prompt, file, "trace", raw=raw, system=system, chat_template=chat_template)

    from cutaway.engine.llm import LLM

    with nullcontext() if request is None else new_folder(out) as folder:
        try:
            with first_use(error_console()) as (fetching, compiling), missing_template_told("add --raw"):
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
                    stream = ask(llm, text, params, raw=raw, system=system, taps=request)
                    asked.check_memory(llm, len(stream.prompt_token_ids), params)
                    if request is not None:
                        _tell_plan(request, llm, len(stream.prompt_token_ids), max_tokens)
                    listen(stream, compiling)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        say("\n")
        output = stream.output()
        _tell(closing_line(output, params))
        if folder is not None:
            assert request is not None
            size = _write(folder, llm, output, params, request, kv_dtype)
    if folder is not None:
        assert output.taps is not None
        _tell(f"{out}: {len(output.taps):,} tensors, {size:,} bytes")
    finish(output, params, error_console())


def _tell(text: str) -> None:
    """A line beside the answer, on standard error."""
    error_console().print(text, style="dim", soft_wrap=True)


def _tell_plan(request: "TapRequest", llm: "LLM", num_prompt: int, max_tokens: int) -> None:
    """Say before the first step what will be kept of so many tokens."""
    plan = request.plan(llm.runner, num_prompt, min(max_tokens, llm.runner.context - num_prompt))
    _tell(f"taps: {plan.describe()}; {plan.num_bytes:,} bytes at most")


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
