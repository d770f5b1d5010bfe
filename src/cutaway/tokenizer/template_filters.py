"""The filters that chat templates may use; each call is charged to the rendering's allowance.

In: Jinja's own filters, and ours where Jinja's would lose marks or make much in one step. Out: ``FILTERS``, by
name; all others are refused.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context

from cutaway.tokenizer.provenance import MarkedText, plain
from cutaway.tokenizer.template_allowance import ELEMENT, OBJECT, Allowance

if TYPE_CHECKING:
    from cutaway.tokenizer.template_sandbox import TemplateSandbox

MAX_FILTER_NUMBER = 100_000  # the limit that Jinja's sandbox gives to range
MAX_INDENT = 64
MAX_INTEGER_BITS = 1024
MAX_NAME = 256  # characters of an attribute's path, of the characters to strip, of a date's format

LINE_ENDS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # as str.splitlines knows them

# What a filter does with its value decides how the value is passed and charged.
_OF_ONE = ("abs", "count", "d", "default", "first", "float", "items", "last", "length", "round", "truncate")
_OF_TEXT = ("capitalize", "lower", "upper")
_OF_ITEMS = ("batch", "list", "map", "reject", "rejectattr", "select", "selectattr", "slice")
_BY_KEY = ("groupby", "max", "min", "sort", "unique")


class _KeyReader:
    """The environment as filters that order by a key see it: keys are copied there, so reading one is charged."""

    def __init__(self, sandbox: "TemplateSandbox") -> None:
        self._sandbox = sandbox
        self.undefined = sandbox.undefined
        self.is_async = False

    def getitem(self, item: Any, name: Any) -> Any:
        value = self._sandbox.getitem(item, name)
        self._sandbox.allowance.spend_on(value)
        return value


def _sandbox_of(context: Context) -> "TemplateSandbox":
    return context.environment  # type: ignore[return-value]


def _limited(filter_function: Callable[..., Any], kind: tuple[str, ...] = _OF_ONE) -> Callable[..., Any]:
    """A filter that is charged for what it takes and what it makes. Taking the context also keeps Jinja from
    running it while compiling.
    """
    wanted = getattr(filter_function, "jinja_pass_arg", None)  # the first argument that the filter asks Jinja for

    @pass_context
    def limited(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        sandbox = _sandbox_of(context)
        sandbox.allowance.spend(0)
        if any(isinstance(arg, int) and abs(arg) > MAX_FILTER_NUMBER for arg in (*args, *kwargs.values())):
            raise SecurityError(f"it passes a number above {MAX_FILTER_NUMBER} to a filter")
        environment: Any = sandbox
        if kind is _OF_TEXT:
            value = sandbox.printed_text(value)
        elif kind is _OF_ITEMS and value:
            _check_names(kwargs.get("attribute"))
            value = sandbox.allowance.metered(value)
        elif kind is _BY_KEY and value:
            _check_names(*args, *kwargs.values())
            environment = _KeyReader(sandbox)
            parts = sum(len(re.split("[.,]", arg)) for arg in (*args, *kwargs.values()) if isinstance(arg, str))
            value = _metered_whole(sandbox.allowance, value, OBJECT * (1 + parts))
        texts = [sandbox.text(arg) if isinstance(arg, str) else arg for arg in (value, *args)]
        first = {"context": context, "eval_context": context.eval_ctx, "environment": environment}
        passed = [first[wanted.name]] if wanted else []
        return sandbox.admit(filter_function(*passed, *texts, **kwargs))

    return limited


def _metered_whole(allowance: Allowance, values: Any, price: int) -> Iterator[Any]:
    """As ``metered``, the size of each value included: its key may be a copy of it."""
    for value in allowance.metered(values, price):
        allowance.spend_on(value)
        yield value


def _check_names(*names: Any) -> None:
    if any(isinstance(name, str) and len(name) > MAX_NAME for name in names):
        raise SecurityError(f"it passes a name of more than {MAX_NAME} characters to a filter")


def _selecting(name: str) -> Callable[..., Any]:
    """``selectattr`` or ``rejectattr``."""

    @pass_context
    def selecting(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        _check_names(*args[:1])
        return JINJA_FILTERS[name](context, value, *args, **kwargs)

    return selecting


@pass_context
def _sorted_entries(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
    allowance = _sandbox_of(context).allowance
    allowance.spend(OBJECT * len(value))
    allowance.spend_on(value)
    return JINJA_FILTERS["dictsort"](value, *args, **kwargs)


@pass_context
def _reverse(context: Context, value: Any) -> Any:
    lazy = isinstance(value, Iterator)  # Jinja makes a list of it
    return JINJA_FILTERS["reverse"](_sandbox_of(context).allowance.metered(value) if lazy else value)


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    number: int = JINJA_FILTERS["int"](value, default, base)
    if isinstance(number, int) and number.bit_length() > MAX_INTEGER_BITS:
        raise SecurityError(f"it reads an integer of more than {MAX_INTEGER_BITS} bits")
    return number


@pass_context
def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    sandbox = _sandbox_of(context)
    return sandbox.join(d, value if attribute is None else (sandbox.getitem(item, attribute) for item in value))


@pass_context
def _replace(context: Context, s: str, old: str, new: str, count: int | None = None) -> str:
    sandbox = _sandbox_of(context)
    return sandbox.replace(sandbox.printed_text(s), old, new, count)


@pass_context
def _trim(context: Context, s: str, chars: str | None = None) -> str:
    sandbox = _sandbox_of(context)
    return sandbox.strip(sandbox.printed_text(s), chars)


@pass_context
def _indent(context: Context, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
    margin = len(width) if isinstance(width, str) else width
    if margin > MAX_INDENT:
        raise SecurityError(f"it indents by more than {MAX_INDENT} characters")
    sandbox = _sandbox_of(context)
    sandbox.spend_on_pieces(LINE_ENDS.finditer(plain(s)), OBJECT + margin)
    return JINJA_FILTERS["indent"](s, width, first, blank)


@pass_context
def _title(context: Context, s: MarkedText) -> str:
    sandbox = _sandbox_of(context)
    sandbox.spend_on_pieces(re.finditer(r"[-\s({\[<]+", s.plain))  # where Jinja begins words
    return s.mapped(JINJA_FILTERS["title"])


def _string(value: Any) -> Any:
    return value


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's templates expect it: not escaped for HTML, non-ASCII characters as they are."""
    if (indent or 0) > MAX_INDENT or len("".join(separators or ())) > MAX_INDENT:
        raise SecurityError(f"it indents JSON by more than {MAX_INDENT} characters")
    if ensure_ascii:
        raise SecurityError("it asks for JSON in ASCII")
    sandbox = _sandbox_of(context)
    sandbox.allowance.spend_on(value)
    _spend_on_layout(sandbox.allowance, value, indent or 0, len("".join(separators or ())))
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    sandbox.allowance.spend(ELEMENT * text.count("\\"))
    # An escape spells a character of user text with others, so these are marked as well.
    marked = lru_cache(maxsize=None)(sandbox.marks.mark)  # there are few different ones
    return re.sub(r"\\(u[0-9a-f]{4}|.)", lambda escape: marked(escape[0]), text)


def _spend_on_layout(allowance: Allowance, value: Any, indent: int, separators: int) -> None:
    """Charge what JSON puts around elements: separators, and on each line the indentation of its depth."""
    open_values = [(value, 1)]
    while open_values:
        item, depth = open_values.pop()
        children = list(item.values()) if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else ()
        allowance.spend(len(children) * (2 * ELEMENT + separators + indent * depth) + indent * depth)
        open_values += [(child, depth + 1) for child in children]


FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _limited(JINJA_FILTERS[name], kind) for kind in (_OF_ONE, _OF_TEXT, _OF_ITEMS, _BY_KEY) for name in kind},
    "selectattr": _limited(_selecting("selectattr"), _OF_ITEMS),
    "rejectattr": _limited(_selecting("rejectattr"), _OF_ITEMS),
    "dictsort": _limited(_sorted_entries),
    "reverse": _limited(_reverse),
    "int": _limited(_int),
    "join": _limited(_join),
    "replace": _limited(_replace),
    "trim": _limited(_trim),
    "indent": _limited(_indent),
    "title": _limited(_title, _OF_TEXT),
    "string": _limited(_string, _OF_TEXT),
    "safe": _limited(_string, _OF_TEXT),  # nothing is escaped, so nothing needs to be declared safe
    "tojson": _limited(_tojson),
}
