"""The explanation of a command's answer: in the terminal, as a JSON file, as an HTML file.

In: what was asked for; then the engine before the answer, and the answer. Out: pages and files. A command that offers
it makes an ``AskedExplanation`` before the model is loaded, has the request computed within ``watching``, and calls
what that gave behind it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.console import first_use
from cutaway.cli.files import check_apart, check_can_be_written, write_result
from cutaway.cli.stages import stages
from cutaway.errors import InvalidRequestError, counted

if TYPE_CHECKING:
    from rich.console import Console

    from cutaway.engine.llm import LLM
    from cutaway.engine.outputs import RequestOutput
    from cutaway.sampling.params import SamplingParams

    Finish = Callable[[RequestOutput, SamplingParams, Console], None]

Report = Annotated[
    Path | None, typer.Option("--report", help="Explain the answer in one HTML file that needs nothing else.")
]
ExplanationFile = Annotated[
    Path | None, typer.Option("--explanation", help="The same as data: a JSON file; docs/explanations.md has its keys.")
]
Explain = Annotated[bool, typer.Option("--explain", help="The same in the terminal, behind the answer.")]
Places = Annotated[
    list[int] | None,
    typer.Option(
        "--at",
        metavar="POSITION",
        help="With --explain: the token at this position in full, its funnel, candidates and lens; several in turn.",
    ),
]


@dataclass(frozen=True)
class AskedExplanation:
    """What is wanted of an answer's explanation."""

    report: Path | None
    data: Path | None
    in_terminal: bool
    places: Sequence[int] = ()  # positions of the tokens that the terminal shows in full

    def check(self, params: "SamplingParams", out: Path | None = None) -> None:
        """Refuse what can't be done, before the work. out: where the command writes something else, by ``--out``."""
        from cutaway.audit.explain.explanation import check_explainable

        if self.wanted:
            check_explainable(params)
        if self.places and not self.in_terminal:
            raise InvalidRequestError("--at names a token, and there is no --explain. Add it, or leave --at.", "at")
        check_apart({"--out": out, "--report": self.report, "--explanation": self.data})
        for path, option in ((self.report, "--report"), (self.data, "--explanation")):
            if path is not None:
                check_can_be_written(path, option)

    @property
    def wanted(self) -> bool:
        """Whether any of it is."""
        return self.in_terminal or self.report is not None or self.data is not None

    def check_memory(self, llm: "LLM", num_prompt: int, params: "SamplingParams") -> None:
        """Refuse what there is no memory for, before the answer."""
        from cutaway.audit.explain.explanation import check_memory

        if self.wanted:
            check_memory(llm, num_prompt, params)

    @contextmanager
    def watching(self, llm: "LLM", *, with_ledger: bool = True) -> "Iterator[Finish]":
        """Watch the engine's steps within; what is to be called with the answer, behind it. with_ledger: measure the
        machine, and have the steps run timed.
        """
        if not self.wanted:
            yield lambda output, params, console: None
            return
        from cutaway.audit.explain.explanation import explain_output
        from cutaway.audit.explain.steps import watched_steps
        from cutaway.audit.request_ledger import meter_of

        with watched_steps(llm, meter_of(llm) if with_ledger else None) as seen:

            def finish(output: "RequestOutput", params: "SamplingParams", console: "Console") -> None:
                ledger = seen.ledger(output.request_id)
                with first_use(console), stages(console) as stage:
                    stage.begin(f"explaining {counted(len(output.outputs[0].token_ids), 'token')}")
                    found = explain_output(llm, output, params, seen.steps, seen.decisions, ledger, stage.at)
                self._show(found, console)

            yield finish

    def _show(self, found: Any, console: "Console") -> None:
        from cutaway.audit.explain.data import explanation_dict
        from cutaway.audit.explain.report import write_report
        from cutaway.cli.explain_text import check_places, explanation_pages
        from cutaway.cli.tables import print_whole

        if self.in_terminal:
            print_whole(console, explanation_pages(found, self.places))
        if self.data is not None:
            write_result(self.data, json.dumps(explanation_dict(found), ensure_ascii=False, allow_nan=False))
        if self.report is not None:
            write_report(self.report, found)
            console.print(f"{self.report}: open it in a browser", style="dim", soft_wrap=True)
        check_places(found, self.places)  # last: the answer took its time, and its positions are known only now
