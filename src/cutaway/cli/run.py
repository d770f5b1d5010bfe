"""``cutaway run``: one question, one answer, streamed.

In: a model, a prompt (argument, file or standard input), sampling parameters. Out: the answer on standard output as it
is generated, statistics on standard error; or one JSON object.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cutaway.cli.ask import ask, listen
from cutaway.cli.closing_line import closing_line
from cutaway.cli.console import INTERRUPTED, CompileProgress, error_console, first_use, say
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
    Prompt,
    PromptFile,
    Raw,
    Seed,
    Stop,
    System,
    Threads,
    with_advice,
)
from cutaway.cli.prompt import read_question
from cutaway.cli.recording import RecordFile, RecordKey, RecordLevel, record_of
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.ops.numerics import NUMERICS_VERSION

if TYPE_CHECKING:
    from cutaway.audit.request_ledger import SharedLedger, StepClocks
    from cutaway.engine.llm import LLM
    from cutaway.engine.outputs import RequestOutput
    from cutaway.engine.stream import Stream
    from cutaway.sampling.params import SamplingParams


def run(
    model: ModelName,
    prompt: Prompt = None,
    file: PromptFile = None,
    raw: Raw = False,
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
    _check(given, as_json)
    text = read_question(prompt, file, "run", raw=raw, system=system, chat_template=chat_template)

    # Imported here: what is refused shall not wait for the compiler to load.
    from cutaway.engine.llm import LLM
    from cutaway.sampling.params import SamplingParams

    with first_use(error_console()) as (fetching, compiling), missing_template_told("add --raw"):
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
        stream = ask(llm, text, params, raw=raw, system=system)
        interrupted = _is_interrupted(stream, compiling, aloud=not as_json)
    output = stream.output()
    spent = None if clocks is None else _end_clocks(llm, clocks, output.request_id)
    answer = Answer(llm, params, stream, output, spent, interrupted)
    if as_json:
        _print_json(answer, {"kv": kv, "kv_dtype": kv_dtype, "chat_template": chat_template})
    else:
        _print_summary(answer)
    _end(answer, is_recorded=record is not None)


class Answer(NamedTuple):
    """What came of the question."""

    llm: "LLM"
    params: "SamplingParams"  # with what the model's authors advise
    stream: "Stream"
    output: "RequestOutput"
    ledger: "SharedLedger | None"  # where it is wanted
    interrupted: bool  # by Ctrl-C


def _check(given: Mapping[str, Any], as_json: bool) -> None:
    """Tell what is wrong with the sampling options before anything is loaded."""
    from cutaway.sampling.params import SamplingParams

    SamplingParams(**with_advice(given, {}))
    if given["logprobs"] is not None and not as_json:
        raise InvalidRequestError("logprobs are printed with --json only. Add it, or leave --logprobs.", "logprobs")


def _begin_clocks(llm: "LLM") -> "StepClocks":
    """Measure the machine's limits, and have the steps run timed from now on."""
    from cutaway.audit.request_ledger import StepClocks, meter_of

    clocks = StepClocks(meter_of(llm))
    llm.engine().call(clocks.begin).result()
    return clocks


def _end_clocks(llm: "LLM", clocks: "StepClocks", request_id: str) -> "SharedLedger":
    """The ledger of the answer."""
    llm.engine().call(clocks.end).result()
    return clocks.ledger([request_id])


def _is_interrupted(stream: "Stream", compiling: CompileProgress, *, aloud: bool) -> bool:
    """Listen to the answer; whether Ctrl-C ended it."""
    try:
        listen(stream, compiling, aloud=aloud)
    except KeyboardInterrupt:
        return True
    return False


def _print_json(answer: Answer, options: Mapping[str, Any]) -> None:
    """Everything, as one JSON object. options: what was asked of the engine."""
    report = _report(answer, options)
    if answer.ledger is not None:
        report["ledger"] = answer.ledger.as_dict()
    say(json.dumps(report, ensure_ascii=False) + "\n")


def _print_summary(answer: Answer) -> None:
    """What stands behind an answer on standard error: a line of statistics, and the ledger where it is wanted."""
    console = error_console()
    say("\n")
    line = closing_line(answer.output, answer.params, interrupted=answer.interrupted)
    console.print(line, style="dim", soft_wrap=True)
    if answer.ledger is not None:
        from cutaway.cli.tables import print_whole, shared_ledger_table

        print_whole(console, [shared_ledger_table(answer.ledger, "What it took")])


def _end(answer: Answer, *, is_recorded: bool) -> None:
    """Exit by a code that says so where the answer was interrupted, or its record could not be written."""
    if answer.interrupted:
        if is_recorded:  # its end shall be there
            answer.stream.close()
            answer.llm.close()
        raise typer.Exit(INTERRUPTED)
    written = answer.output.record
    if written is not None and "error" in written:  # told already; the answer is whole nevertheless
        raise typer.Exit(CapacityError.exit_code)


def _logprobs(entries: Any) -> list[dict[str, Any]]:
    """The logprobs of one position, the likeliest first."""
    ranked = sorted(entries.items(), key=lambda item: item[1].rank)
    return [
        {"token_id": token, "text": each.decoded_token, "rank": each.rank, "logprob": each.logprob}
        for token, each in ranked
    ]


def _report(answer: Answer, options: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as plain data, but for its ledger."""
    llm, output = answer.llm, answer.output
    completion, numbers = output.outputs[0], output.statistics
    return {
        "model": llm.model.name,
        "numerics_version": NUMERICS_VERSION,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "prompt_token_ids": output.prompt_token_ids,
        "finish_reason": "interrupted" if answer.interrupted else completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "logprobs": completion.logprobs and [_logprobs(entries) for entries in completion.logprobs],
        "seed": output.seed,
        "parameters": {**asdict(answer.params), "seed": output.seed},
        **options,
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
