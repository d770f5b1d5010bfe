"""``cutaway run``: one question, one answer, streamed.

In: a model, a prompt (argument, file or standard input), sampling parameters. Out: the answer on standard output as it
is generated, statistics on standard error; or one JSON object.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.console import INTERRUPTED, error_console, first_use, generated
from cutaway.cli.missing_template import missing_template_told
from cutaway.cli.models import ModelName
from cutaway.cli.options import (
    KV,
    MAX_TOKENS,
    AdvisedMinP,
    AdvisedRepetitionPenalty,
    AdvisedTemperature,
    AdvisedTopK,
    AdvisedTopP,
    ChatTemplate,
    Context,
    FrequencyPenalty,
    IgnoreEos,
    KVDtype,
    Logprobs,
    MaxTokens,
    MinTokens,
    PresencePenalty,
    Seed,
    Stop,
    System,
    Threads,
    effective,
    with_advice,
)
from cutaway.cli.prompt import read_question
from cutaway.cli.recording import RecordFile, RecordKey, RecordLevel, record_of
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.ops.numerics import NUMERICS_VERSION


def run(
    model: ModelName,
    prompt: Annotated[
        str | None, typer.Argument(help="What to say; read from standard input where it is a pipe.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete the text as it is, without the chat template.")] = False,
    system: System = None,
    chat_template: ChatTemplate = None,
    temperature: AdvisedTemperature = None,
    top_k: AdvisedTopK = None,
    top_p: AdvisedTopP = None,
    min_p: AdvisedMinP = None,
    repetition_penalty: AdvisedRepetitionPenalty = None,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    stop: Stop = None,
    seed: Seed = None,
    max_tokens: MaxTokens = MAX_TOKENS,
    min_tokens: MinTokens = 0,
    ignore_eos: IgnoreEos = False,
    logprobs: Logprobs = None,
    context: Context = None,
    threads: Threads = None,
    kv: KV = "paged",
    kv_dtype: KVDtype = "f16",
    record: RecordFile = None,
    record_level: RecordLevel = None,
    record_key: RecordKey = None,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Show what the answer took, operation by operation, beside the limits.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Ask a model something."""
    from cutaway.sampling.params import SamplingParams

    given = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "stop": stop,
        "seed": seed,
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "ignore_eos": ignore_eos,
        "logprobs": logprobs,
    }
    SamplingParams(**with_advice(given, {}))  # what is wrong with them is told before anything is loaded
    if logprobs is not None and not as_json:
        raise InvalidRequestError("logprobs are printed with --json only. Add it, or leave --logprobs.", "logprobs")
    text = read_question(prompt, file, "run", raw=raw, system=system, chat_template=chat_template)

    from cutaway.engine.llm import LLM

    console = error_console()
    interrupted = False
    with first_use(console) as (fetching, compiling), missing_template_told("add --raw"):
        llm = LLM(
            model,
            threads=threads,
            max_model_len=context,
            kv=kv,
            kv_dtype=kv_dtype,
            chat_template=chat_template,
            needs_chat=not raw,
            record=record_of(record, record_level, record_key, fetching),
            progress=fetching,
        )
        params = SamplingParams(**with_advice(given, llm.default_params))
        clocks = _begin_clocks(llm) if ledger else None
        if raw:
            stream = llm.stream(text, params)
        else:
            instruction = [{"role": "system", "content": system}] if system else []
            stream = llm.stream_chat([*instruction, {"role": "user", "content": text}], params)
        try:
            for delta in stream:
                compiling.done()  # the first token has compiled what was left
                if not as_json:
                    _say(delta.text)
        except KeyboardInterrupt:
            interrupted = True
    output = stream.output()
    if as_json:
        report = _report(output, llm, params, kv, kv_dtype, chat_template, interrupted)
        if clocks is not None:
            report["ledger"] = _end_clocks(llm, clocks, output.request_id).as_dict()
        _say(json.dumps(report, ensure_ascii=False) + "\n")
    else:
        _say("\n")
        console.print(_summary(output, params, interrupted), style="dim", soft_wrap=True)
        if clocks is not None:
            from cutaway.cli.tables import print_whole, shared_ledger_table

            print_whole(console, [shared_ledger_table(_end_clocks(llm, clocks, output.request_id), "What it took")])
    if interrupted:
        if record is not None:  # its end shall be there
            stream.close()
            llm.close()
        raise typer.Exit(INTERRUPTED)
    if output.record is not None and "error" in output.record:  # told already; the answer is whole nevertheless
        raise typer.Exit(CapacityError.exit_code)


def _begin_clocks(llm: Any) -> Any:
    """Measure the machine's limits, and have the steps run timed from now on."""
    from cutaway.audit.request_ledger import StepClocks, meter_of

    clocks = StepClocks(meter_of(llm))
    llm.engine().call(clocks.begin).result()
    return clocks


def _end_clocks(llm: Any, clocks: Any, request_id: str) -> Any:
    """The ledger of the answer."""
    llm.engine().call(clocks.end).result()
    return clocks.ledger([request_id])


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _summary(output: Any, params: Any, interrupted: bool) -> str:
    numbers = output.statistics
    ending = (
        "interrupted"
        if interrupted
        else {"stop": "end of answer", "length": "length limit", None: "no token"}[output.outputs[0].finish_reason]
    )
    return (
        f"{numbers.prompt_tokens} prompt tokens in {numbers.prefill_seconds:.2f} s, {numbers.prefill_rate:.0f} tok/s · "
        f"{generated(numbers)} · {ending} · {_sampling(params)} · seed {output.seed}"
    )


def _sampling(params: Any) -> str:
    """What decided on the distribution that tokens were drawn from, by the names of the options."""
    names = ("top_k", "top_p", "min_p") if params.temperature else ()
    in_effect = effective(params)
    further = [
        f"{name.replace('_', '-')} {in_effect[name]:g}" for name in (*names, "repetition_penalty") if name in in_effect
    ]
    return ", ".join([f"temperature {params.temperature:g}", *further])


def _logprobs(entries: Any) -> list[dict[str, Any]]:
    """The logprobs of one position, the likeliest first."""
    ranked = sorted(entries.items(), key=lambda item: item[1].rank)
    return [
        {"token_id": token, "text": each.decoded_token, "rank": each.rank, "logprob": each.logprob}
        for token, each in ranked
    ]


def _report(
    output: Any, llm: Any, params: Any, kv: str, kv_dtype: str, chat_template: str | None, interrupted: bool
) -> dict[str, Any]:
    completion, numbers = output.outputs[0], output.statistics
    return {
        "model": llm.model.name,
        "numerics_version": NUMERICS_VERSION,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "prompt_token_ids": output.prompt_token_ids,
        "finish_reason": "interrupted" if interrupted else completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "logprobs": completion.logprobs and [_logprobs(entries) for entries in completion.logprobs],
        "seed": output.seed,
        "parameters": {**asdict(params), "seed": output.seed},
        "kv": kv,
        "kv_dtype": kv_dtype,
        "chat_template": chat_template,
        "context": llm.runner.context,
        "threads": llm.runner.team.size,
        "prompt_tokens": numbers.prompt_tokens,
        "generated_tokens": numbers.generated_tokens,
        "prefill_seconds": round(numbers.prefill_seconds, 6),
        "decode_seconds": round(numbers.decode_seconds, 6),
        "prefill_tokens_per_second": round(numbers.prefill_rate, 1),
        "decode_tokens_per_second": round(numbers.decode_rate, 1),
        "kv_reserved_bytes": numbers.kv_reserved_bytes,
        "kv_used_bytes": numbers.kv_used_bytes,
        "record": output.record,
    }
