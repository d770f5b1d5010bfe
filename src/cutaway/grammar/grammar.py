"""A grammar, compiled for one vocabulary: what all answers of its form begin with.

In: a form that was asked for. Out: a ``Grammar``, or an InvalidRequestError that says what can't be enforced.
"""

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from cutaway.errors import InvalidRequestError
from cutaway.grammar.json_schema import CheckedSchema, Place, ends_in_escape
from cutaway.grammar.state import GrammarState, first_line
from cutaway.sampling.structured_outputs import FIELD, StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

WHITESPACE: Final = r"\x20|\x0D?\x0A[\x20\x09]{0,32}"
"""At each place where JSON allows white space, once at most: one space, or a new line with an indentation. Without a
bound a model may write spaces until its tokens are spent."""
ASCII_CLASSES: Final = "dws"
"""``\\d``, ``\\w`` and ``\\s`` of a regex are ASCII's; in those of a schema, they are as llguidance has them."""
JSON_OPTIONS: "Final[JsonCompileOptions]" = {
    "whitespace_pattern": WHITESPACE,
    # One spelling for each character, without \\uXXXX: two of one name would be two names to the grammar, and one to
    # whoever reads the answer.
    "json_allowed_escapes": 'nrbtf\\"',
    "lenient": False,
    "coerce_one_of": False,
}
MOST_ITEMS: Final = 20_000
"""Places of a grammar where an answer may be at once: an object with n optional properties has 4 · n."""
MOST_FUEL: Final = 200_000
"""Work for the expressions of a grammar before its first answer, in llguidance's unit: a tenth of a second, and 16 MiB
for an expression that repeats itself. Its default is five times that, and many grammars are kept."""
STRUCTURE: Final = frozenset({"properties", "required", "items", "prefixItems", "anyOf", "allOf", "$ref"})
"""Keywords that are blamed last: others are what goes beyond them."""
SAID_BETTER: Final = {
    "oneOf": "two of its schemas may apply at once, as far as can be seen. Give them different types, or a required "
    "property with different values of const; or use anyOf"
}
SEARCH: Final = 1.0
"""Seconds for finding what in a schema is to blame."""


class Grammar:
    """Shared by all answers of its form; it never changes."""

    def __init__(self, matcher: "LLMatcher", V: int) -> None:
        self._matcher, self._V = matcher, V

    def start(self, end_ids: Iterable[int] = ()) -> GrammarState:
        """The beginning of an answer. end_ids: tokens that are no text, allowed where the answer may end."""
        return GrammarState(self._matcher.deep_copy(), self._V, end_ids)


def compile_grammar(form: StructuredOutputsParams, vocabulary: "LLTokenizer") -> Grammar:
    """The grammar of a form; vocabulary: of ``grammar_vocabulary``.

    It may take seconds, and much of the stack: ``Grammars`` does it in a thread of its own. Raises InvalidRequestError.
    """
    field = f"{FIELD}.{form.kind}"
    checked = None if form.json is None else CheckedSchema(json.loads(form.json), field)
    try:
        if checked is None:
            return _compile(_source(form), vocabulary)
        return _compile(_json_source(checked.alone(checked.root), excludes=checked.excludes), vocabulary)
    except NotEnforcedError as error:
        reason = str(error)
    if checked is not None:
        field, reason = _culprit(checked, reason, vocabulary)
    raise InvalidRequestError(f"{field} can't be enforced: {reason.rstrip('.')}. Change it.", field)


class NotEnforcedError(Exception):
    """Why a grammar can't be compiled."""


def _compile(source: str, vocabulary: "LLTokenizer") -> Grammar:
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_items_in_row=MOST_ITEMS, initial_lexer_fuel=MOST_FUEL, verbose_errors=False)
    matcher = LLMatcher(vocabulary, source, log_level=0, limits=limits)
    problem = matcher.get_error() if matcher.is_error() else "\n".join(matcher.get_grammar_warnings())
    if problem:
        raise NotEnforcedError(first_line(problem))
    grammar = Grammar(matcher, vocabulary.vocab_size - 1)
    try:
        state = grammar.start()
    except InvalidRequestError:
        raise NotEnforcedError("no answer can begin") from None
    if state.finished:
        raise NotEnforcedError("it allows no answer but an empty one, and there must be one token at least")
    return grammar


def _source(form: StructuredOutputsParams) -> str:
    """A form that is no schema, in the notation of llguidance."""
    from llguidance import LLMatcher, regex_to_lark

    if form.json_object:
        return _json_source({"type": "object"})
    if form.regex is not None:
        if ends_in_escape(form.regex):
            raise NotEnforcedError("a backslash at its end escapes nothing")
        return LLMatcher.grammar_from_lark(f"start: /{regex_to_lark(form.regex, ASCII_CLASSES)}/")
    if form.choice is not None:
        return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, form.choice)))
    assert form.grammar is not None
    return LLMatcher.grammar_from_lark(form.grammar)


def _json_source(schema: Any, *, excludes: bool = False) -> str:
    """excludes: see ``CheckedSchema``; then no string has a quote or a backslash."""
    from llguidance import LLMatcher

    options: JsonCompileOptions = {**JSON_OPTIONS}
    if excludes:
        options["json_allowed_escapes"] = "nrbtf"
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
    except ValueError as error:
        raise NotEnforcedError(first_line(str(error))) from None


def _culprit(checked: CheckedSchema, reason: str, vocabulary: "LLTokenizer") -> tuple[str, str]:
    """Where the innermost schema is that can't be enforced by itself, which of its keywords is to blame if one is, and
    why. The search has a second.
    """
    end = time.monotonic() + SEARCH

    def problem(schema: Any) -> str | None:
        if time.monotonic() > end:
            return None
        try:
            _compile(_json_source(schema, excludes=checked.excludes), vocabulary)
        except NotEnforcedError as error:
            return str(error)
        return None

    place, seen = checked.root, {id(checked.root.schema)}
    inner: Place | None = place
    while inner is not None:
        place, inner = inner, None
        for each in checked.within(place):
            if id(each.schema) in seen or each.schema is False:
                continue
            seen.add(id(each.schema))
            found = problem(checked.alone(each))
            if found is not None:
                inner, reason = each, found
                break
    names = () if isinstance(place.schema, bool) else sorted(place.schema, key=lambda name: name in STRUCTURE)
    for name in names:
        rest = {key: value for key, value in place.schema.items() if key != name}
        if name not in ("type", "$defs", "definitions") and problem(checked.alone(place._replace(schema=rest))) is None:
            return checked.path_of(place, name), SAID_BETTER.get(name, reason)
    return place.path, reason
