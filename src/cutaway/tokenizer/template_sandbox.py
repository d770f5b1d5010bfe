"""The sandbox in which a model file's chat template runs: the file is foreign, and so is its program.

In: Jinja source. Out: an environment that reaches no Python internals, and in which each rendering has a
limit of time and of the material it creates. Jinja's sandbox closes the first door (and limits ``range``);
the limits are made here:

- every call, filter, concatenation, arithmetic operation, list or mapping literal, slice, printed value and
  round of a loop passes through a method below, which charges the size of its result (characters, elements)
  to one allowance and looks at the clock; between two of these nothing grows, and no single step is longer
  than the allowance permits;
- what can make much from little in one step (``*``, ``**``, ``%`` with widths, ``join``, ``replace``) is
  charged before;
- filters and attributes are named in lists; all others are refused.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, TemplateReference
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from cutaway.errors import ModelFileError
from cutaway.tokenizer.provenance import TEXT_METHODS, MarkedText, Marks, plain

MAX_SOURCE = 262_144  # characters of a template; the longest known ones have 20,000
MAX_INTEGER_BITS = 1024
MAX_FILTER_NUMBER = 100_000  # the limit that Jinja's sandbox gives to range
MAX_INDENT = 64


@dataclass(frozen=True)
class RenderLimits:
    """What one rendering may use: characters and elements created in all, and seconds."""

    material: int = 2**22
    seconds: float = 3.0


class GenerationBlock(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's words for training; here it is just its
    content.
    """

    tags = {"generation"}  # noqa: RUF012 (Jinja's interface)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _ConcatThroughSandbox(CodeGenerator):
    """``a ~ b`` calls the environment, too."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 (Jinja's interface)
        self.write("environment.concat((")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write("))")


class _CallsOnGrowth(NodeTransformer):
    """Put a call of the environment into every loop and around every list and mapping that a template
    writes.
    """

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        tick = nodes.ExprStmt(self._call(nodes.Const(None)))
        node.body.insert(0, tick.set_lineno(node.lineno))
        return node

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        constant = all(isinstance(item, nodes.Const) for item in node.items)
        return node if constant else self._call(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return self._call(node) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return self._call(node)

    @staticmethod
    def _call(value: nodes.Expr) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute("charged"), [value], [], None, None)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """One rendering's environment: Hugging Face's settings, the marks of user text, and the allowance."""

    code_generator_class = _ConcatThroughSandbox
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, marks: Marks, limits: RenderLimits, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, GenerationBlock],
            finalize=self._printed,
            cache_size=0,
        )
        self.marks = marks
        self._left = limits.material
        self._limits = limits
        self._clock = clock
        self._deadline = clock() + limits.seconds
        self.globals = {"range": safe_range, "namespace": Namespace, "dict": dict}
        self.filters = FILTERS

    # -- the allowance

    def spend(self, amount: int) -> None:
        """Charge an amount of material.

        Raises:
            ModelFileError: the allowance or the time is used up.
        """
        self._left -= amount + 1
        if self._left < 0:
            raise ModelFileError(
                f"the chat template creates more than {self._limits.material} characters and elements and is "
                "stopped there; use a model with a sound template"
            )
        if self._clock() > self._deadline:
            raise ModelFileError(
                f"the chat template runs for more than {self._limits.seconds:g} s and is stopped there; use "
                "a model with a sound template"
            )

    def charged(self, value: Any) -> Any:
        """Return the value; the call itself is charged for what it returns."""
        return value

    def _admit(self, value: Any) -> Any:
        """Charge a new value's size, everything in it included, and make text out of strings."""
        open_values = [value]
        while open_values:
            item = open_values.pop()
            if isinstance(item, str):
                self.spend(len(item))
            elif isinstance(item, Mapping):
                self.spend(len(item))
                open_values += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple)):
                self.spend(len(item))
                open_values += item
        self.spend(0)
        return self._text(value) if type(value) is str else value

    def _text(self, value: str) -> MarkedText:
        return value if isinstance(value, MarkedText) else MarkedText(value, self.marks)

    # -- what templates do

    @pass_context
    def _printed(self, context: Context, value: Any) -> Any:
        return self._admit(value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.spend(0)
        return __self._admit(super().call(__context, __obj, *args, **kwargs))

    def concat(self, parts: Any) -> str:
        texts = [part if isinstance(part, str) else str(self._admit(part)) for part in parts]
        self.spend(sum(map(len, texts)))
        return self._text("".join(texts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            self.spend(_product_size(left, right))
        elif operator == "**":
            self.spend(0)
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            return self.concat((left, right))
        return self._admit(super().call_binop(context, operator, left, right))

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, str):
            return self._text_method(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, str):
            if isinstance(argument, str):
                return self._text_method(obj, plain(argument))
            obj = self._text(obj)
        item = super().getitem(obj, argument)
        return self._admit(item) if isinstance(argument, slice) else item

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        open_types = (Mapping, list, tuple, Namespace, LoopContext, Macro, TemplateReference)
        return isinstance(obj, open_types) and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"it reaches for the attribute {attribute!r} of {type(obj).__name__!r}, which is unsafe")

    def _text_method(self, text: str, name: str) -> Any:
        own: dict[str, Callable[..., str]] = {"join": self.join, "replace": self.replace}
        if name in own:
            return lambda *args: own[name](text, *args)
        if name in TEXT_METHODS:
            return getattr(self._text(text), name)
        if hasattr(str, name):
            raise SecurityError(f"the method {name!r} of text is not available to templates")
        return self.undefined(obj=text, name=name)

    def join(self, separator: str, items: Any) -> str:
        """``separator.join(items)``, of anything that can be printed."""
        parts: list[Any] = []
        for item in items:
            self.spend(len(separator))
            parts += [separator, item] if parts else [item]
        return self.concat(parts)

    def replace(self, text: str, old: str, new: str, count: int | None = None) -> str:
        """``text.replace(old, new)``; user text stays user text, template text template text."""
        pieces = self._text(text).split(old, -1 if count is None else count)
        return self.join(new, pieces)

    # -- compilation

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        loading = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
        if any(tree.find(kind) for kind in loading):
            raise SecurityError("it loads another template")
        instrumented: nodes.Template = _CallsOnGrowth().visit(tree)
        instrumented.set_environment(self)
        return instrumented


def _product_size(left: Any, right: Any) -> int:
    """The size of ``left * right`` in characters, elements or bits."""
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
            return len(sequence) * max(times, 0)
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
        _refuse_number()
    return 0


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MAX_INTEGER_BITS:
        _refuse_number()


def _check_format(template: str) -> None:
    if re.search(r"%[^a-zA-Z%]*(\*|\d{4})", template):
        raise SecurityError("it pads a formatted value to more than 999 places")


def _refuse_number() -> NoReturn:
    raise SecurityError(f"it computes an integer of more than {MAX_INTEGER_BITS} bits")


# -- filters


def _limited(filter_function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is charged for its result. Taking the context also keeps Jinja from running it while
    compiling.
    """
    wanted = getattr(filter_function, "jinja_pass_arg", None)  # the first argument that the filter asks Jinja for

    @pass_context
    def limited(context: Context, *args: Any, **kwargs: Any) -> Any:
        sandbox: TemplateSandbox = context.environment  # type: ignore[assignment]
        sandbox.spend(0)
        if any(isinstance(arg, int) and abs(arg) > MAX_FILTER_NUMBER for arg in (*args[1:], *kwargs.values())):
            raise SecurityError(f"it passes a number above {MAX_FILTER_NUMBER} to a filter")
        texts = [sandbox._text(arg) if isinstance(arg, str) else arg for arg in args]
        first = {"context": context, "eval_context": context.eval_ctx, "environment": sandbox}
        passed = [first[wanted.name]] if wanted else []
        return sandbox._admit(filter_function(*passed, *texts, **kwargs))

    return limited


@pass_context
def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    sandbox: TemplateSandbox = context.environment  # type: ignore[assignment]
    return sandbox.join(d, value if attribute is None else [sandbox.getitem(item, attribute) for item in value])


@pass_context
def _replace(context: Context, s: str, old: str, new: str, count: int | None = None) -> str:
    sandbox: TemplateSandbox = context.environment  # type: ignore[assignment]
    return sandbox.replace(s if isinstance(s, str) else str(s), old, new, count)


@pass_context
def _indent(context: Context, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
    if (len(width) if isinstance(width, str) else width) > MAX_INDENT:
        raise SecurityError(f"it indents by more than {MAX_INDENT} characters")
    return JINJA_FILTERS["indent"](s, width, first, blank)


def _title(s: str) -> str:
    return s.mapped(JINJA_FILTERS["title"]) if isinstance(s, MarkedText) else str(s).title()


def _string(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


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
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    marks: Marks = context.environment.marks  # type: ignore[attr-defined]
    # An escape spells a character of user text with others, so these are marked as well.
    return re.sub(r"\\(u[0-9a-f]{4}|.)", lambda escape: marks.mark(escape[0]), text)


# fmt: off
_KEPT_FILTERS = (
    "abs", "batch", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse",
    "round", "select", "selectattr", "slice", "sort", "trim", "truncate", "unique", "upper",
)
# fmt: on

FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _limited(JINJA_FILTERS[name]) for name in _KEPT_FILTERS},
    "join": _limited(_join),
    "replace": _limited(_replace),
    "indent": _limited(_indent),
    "title": _limited(_title),
    "string": _limited(_string),
    "safe": _limited(_string),  # nothing is escaped, so nothing needs to be declared safe
    "tojson": _limited(_tojson),
}
