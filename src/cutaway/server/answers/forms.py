"""The form that an answer must have, as a grammar: calls that are demanded, arguments of strict tools, thoughts before.

In: how answers are read, and a form that the client asked for. Out: what the engine enforces; or an InvalidRequestError
that names the tool, or the field, by which it can't be.
Source: llguidance, "Extended Lark syntax".
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from cutaway.errors import InvalidRequestError, QueueFullError
from cutaway.grammar.grammar import JSON_OPTIONS
from cutaway.grammar.grammars import Grammars
from cutaway.grammar.json_schema import CheckedSchema
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.structured_outputs import FIELD, StructuredOutputsParams
from cutaway.server.answers.prompt import AnswerRules
from cutaway.server.answers.tools import Tool
from cutaway.tokenizer.answers.json_call import BESIDE, PYTHON_TAG
from cutaway.tokenizer.answers.marked import HERMES, MISTRAL
from cutaway.tokenizer.tokenizer import Tokenizer

TEXT: Final = r"/(.|\n)*/"
SPACE: Final = r"[ \t\r\n]*"
WHITE: Final = r"/[ \t\r\n]{0,32}/"
BEGIN: Final[Mapping[str, str]] = MappingProxyType(
    {"hermes": HERMES[0], "mistral": MISTRAL[0], "mistral_named": MISTRAL[0]}
)
"""Format → what stands before a call."""
_KEYS: Final = "|".join(["name", "arguments", "parameters", *BESIDE])
_TAG: Final = PYTHON_TAG.replace("|", r"\|")
BARE: Final = rf'/{SPACE}({_TAG})?(```(json)?)?{SPACE}(\[{SPACE})?\{{{SPACE}"({_KEYS})"(.|\n)*/'
"""What a parser may take for a call without markers: text may not begin like this where calls are enforced."""


def with_form(tokenizer: Tokenizer, rules: AnswerRules, params: SamplingParams) -> tuple[SamplingParams, AnswerRules]:
    """The parameters with the form that is enforced, and how its answers are read. Errors are ``enforced_form``'s."""
    given = params.structured_outputs
    form = enforced_form(tokenizer, rules, given)
    if form is not None and form is given and rules.within_reasoning:  # the answer is of the form at once
        rules = replace(rules, form=rules.form._replace(reasoning=None))
    return (params if form is given else replace(params, structured_outputs=form)), rules


def is_written(rules: AnswerRules, form: StructuredOutputsParams | None) -> bool:
    """Whether a grammar is written for the answer, beside the form that the client asked for. It may take long."""
    use = rules.use
    if form is not None and (use.tools or rules.within_reasoning):
        return True
    return use.must_call or any(tool.strict for tool in use.tools)


def enforced_form(
    tokenizer: Tokenizer, rules: AnswerRules, form: StructuredOutputsParams | None
) -> StructuredOutputsParams | None:
    """What the engine is to enforce: calls where one is demanded or a tool is strict, else the form itself.

    A form together with tools, or within thoughts, must be one of JSON: then the answer is either calls or of the form,
    and thoughts go before it.

    Raises:
        InvalidRequestError: a schema, or a form together with tools, can't be enforced; ``field`` says which.
    """
    use = rules.use
    if not is_written(rules, form):
        return form
    writer = _Writer(tokenizer, rules)
    if use.must_call:
        return writer.params(writer.calls())
    if form is not None:
        schema = _schema(form)
        if schema is None:
            if not use.tools:
                return form
            raise InvalidRequestError(
                f"there are tools, and the form of the answer is a {form.kind}; beside tools it must be one of JSON. "
                "Leave one out.",
                "tools",
            )
        writer.rule("form", _json(schema, f"{FIELD}.json"))
        return writer.params(f"{writer.calls()} | form" if use.tools else "form")
    return writer.params(writer.free())


def _schema(form: StructuredOutputsParams) -> dict[str, Any] | None:
    """The JSON schema of a form; None of one that is no JSON."""
    if form.json_object:
        return {"type": "object"}
    if form.json is None:
        return None
    schema: dict[str, Any] = json.loads(form.json)
    return schema


def _json(schema: dict[str, Any], path: str) -> str:
    """JSON of a schema, which is changed; in Lark's notation. path: for errors."""
    checked = CheckedSchema(schema, path)
    return "%json " + json.dumps({"x-guidance": JSON_OPTIONS, **checked.alone(checked.root)})


class _Writer:
    """Writes a grammar in Lark's notation."""

    def __init__(self, tokenizer: Tokenizer, rules: AnswerRules) -> None:
        self._tokenizer, self._rules = tokenizer, rules
        self._calls = rules.form.calls
        self._lines: list[str] = []

    def rule(self, name: str, body: str) -> None:
        """Add a rule."""
        self._lines.append(f"{name}: {body}")

    def params(self, start: str) -> StructuredOutputsParams:
        """The grammar that begins with this, or with thoughts before it."""
        reasoning, thoughts = self._rules.form.reasoning, ""
        if reasoning is not None:
            self._until("thoughts", reasoning.end)
            thoughts = "thoughts" if self._rules.within_reasoning else f"({self._mark(reasoning.begin)} thoughts)?"
            thoughts += f" {WHITE} "
        return StructuredOutputsParams(grammar="\n".join([f"start: {thoughts}({start})", *self._lines]))

    def calls(self) -> str:
        """A rule for an answer that is calls, as the model's template writes them."""
        several = self._rules.use.parallel
        mark = self._mark(BEGIN.get(self._calls or "", ""))
        self._inner()
        if self._calls == "json":
            self.rule("calls", "inner" + (' ("; " inner)*' if several else ""))
        elif self._calls == "hermes":
            self.rule("calls", f"{mark} inner" + (rf" (/\n?/ {mark} inner)*" if several else ""))
        else:  # of v0.3, a list after one marker
            again = several and self._calls == "mistral_named"
            self.rule("calls", f"{mark} inner" + (f" ({mark} inner)*" if again else ""))
        return "calls"

    def free(self) -> str:
        """A rule for any answer whose calls, if there are any, are of their form."""
        self._inner()
        several = self._rules.use.parallel
        unmarked = self._calls in ("json", "hermes")
        self.rule("FIRST", f"{TEXT} & ~{BARE}" if unmarked else TEXT)
        answers = ["bare", "list"] if unmarked else []
        if unmarked:
            each = " | ".join(self._bare(number, tool) for number, tool in self._tools())
            # To where FIRST ends it is one terminal: the longest wins, and FIRST would always be the longer one.
            head, fence, gap = rf'\{{{SPACE}"name"', rf"(```(json)?{SPACE})?", r"[ \n]{0,8}"
            again = {mark: f"(/{gap}{mark}{gap}{head}/ ({each}))*" if several else "" for mark in (";?", ",")}
            self.rule("bare", rf"/{fence}{head}/ ({each}) {again[';?']} /({gap}```)?/")
            self.rule("list", rf"/{fence}\[{SPACE}{head}/ ({each}) {again[',']} /{gap}\]({gap}```)?/")
        if self._calls == "json":
            answers.append("FIRST")
        else:
            begin = BEGIN[self._calls or ""]
            self._until("first_text", begin, "FIRST")
            self._until("text", begin)
            self.rule("REST", f"FIRST & {_without(begin)}")
            answers.append(f"(first_text inner {'(text inner)*' if several else ''})? REST")
        self.rule("free", " | ".join(answers))
        return "free"

    def _tools(self) -> list[tuple[int, Tool]]:
        """Those that may be called, with their places in the request."""
        use = self._rules.use
        return [(number, tool) for number, tool in enumerate(use.tools) if use.only in (None, tool.name)]

    def _inner(self) -> None:
        """The rule ``inner``: a call without the marker before it; of a list, all calls."""
        use = self._rules.use
        if self._calls == "tool_code":
            raise InvalidRequestError(
                "calls must be enforced, by tool_choice or strict, and this model writes them in Python (the format "
                "tool_code), whose arguments can't be. Use tool_choice 'auto' and tools that are not strict.",
                "tool_choice" if use.must_call else "tools",
            )
        for number, schema in arguments_schemas(self._rules).items():
            self.rule(f"arguments{number}", _json(schema, f"tools[{number}].function.parameters"))
        call = " | ".join(self._call(number, tool) for number, tool in self._tools())
        if self._calls == "hermes":
            self.rule("inner", rf'"\n" ({call}) "\n" {self._mark(HERMES[1])}')
        elif self._calls == "mistral":
            self.rule("listed", call)
            self.rule("inner", '/ ?/ "[" listed ' + ('(", " listed)* "]"' if use.parallel else '"]"'))
        else:
            self.rule("inner", call)

    def _call(self, number: int, tool: Tool) -> str:
        """A call of a tool."""
        name = json.dumps(tool.name)
        if self._calls == "mistral_named":
            return f"{name} {self._mark(MISTRAL[2])} arguments{number}"
        before = f'{{"name": {name}, "{self._key}": '
        return f'{json.dumps(before)} arguments{number} "}}"'

    def _bare(self, number: int, tool: Tool) -> str:
        """A call without markers, from behind ``{"name"`` on, with white space wherever a model may write it."""
        parts = [":", json.dumps(tool.name), ",", f'"{self._key}"', ":"]
        return " ".join([*(f"{WHITE} {json.dumps(part)}" for part in parts), f'{WHITE} arguments{number} {WHITE} "}}"'])

    @property
    def _key(self) -> str:
        return "parameters" if self._calls == "json" else "arguments"

    def _mark(self, marker: str) -> str:
        """A marker: the control token of this spelling, where there is one, else its text."""
        ids = self._tokenizer.control_ids([marker])
        return f"<[{min(ids)}]>" if ids else json.dumps(marker)

    def _until(self, name: str, marker: str, text: str = TEXT) -> None:
        """A rule: text up to a marker, and the marker."""
        if self._tokenizer.control_ids([marker]):
            self.rule(name, f"{name.upper()}_BEFORE {self._mark(marker)}")
            self.rule(f"{name.upper()}_BEFORE", f"{text} & {_without(marker)}")
        else:
            self.rule(f"{name}[suffix={json.dumps(marker)}]", text)


def arguments_schemas(rules: AnswerRules) -> dict[int, dict[str, Any]]:
    """Of each tool that may be called, by its place: the schema of its arguments that is enforced.

    Of one that is neither strict nor must be called, that is any object.
    """
    use = rules.use
    found: dict[int, dict[str, Any]] = {}
    for number, tool in enumerate(use.tools):
        if use.only not in (None, tool.name):
            continue
        if not (tool.strict or use.must_call):
            found[number] = {"type": "object"}
        elif not tool.parameters:
            found[number] = {"type": "object", "properties": {}, "additionalProperties": False}
        else:
            found[number] = json.loads(json.dumps(tool.definition()["function"]["parameters"]))
    return found


def blamed(grammars: Grammars, rules: AnswerRules, error: InvalidRequestError) -> InvalidRequestError:
    """Of an error of the grammar of calls: the same, or that of the tool whose schema alone has one, too. The search
    has as much time as a form, and no more patience.
    """
    end = time.monotonic() + grammars.time_limit
    for number, schema in arguments_schemas(rules).items():
        if time.monotonic() > end:
            break
        try:
            grammars.get(StructuredOutputsParams(json=schema))
        except QueueFullError:
            break
        except InvalidRequestError as found:
            ours, theirs = f"{FIELD}.json", f"tools[{number}].function.parameters"
            return InvalidRequestError(str(found).replace(ours, theirs), (found.field or ours).replace(ours, theirs))
    return error


def _without(marker: str) -> str:
    """A regular expression for texts that don't have the marker."""
    escaped = "".join(f"\\{each}" if each in "/[]" else each for each in marker)
    return rf"~/(.|\n)*{escaped}(.|\n)*/"
