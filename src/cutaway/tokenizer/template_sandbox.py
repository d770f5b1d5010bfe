"""The sandbox in which a model file's chat template runs: the file is foreign, and so is its program.

In: Jinja source. Out: an environment that reaches no Python internals, and in which each rendering has a
limit of time and of the material it creates. Jinja's sandbox closes the first door (and limits ``range``);
the limits are made here:

- every call, filter, item, concatenation, arithmetic operation, list or mapping literal, slice, printed value, text
  of the template and round of a loop passes through a method below, which charges the size of its result to one
  allowance and looks at the clock; between two of these nothing grows;
- what can make much from little in one step (``*``, ``**``, ``%``, ``join``, ``replace``, ``split``, ``*args``, …) is
  charged before, and what takes the product of two lengths in time (``strip``, searches from the right) is refused
  for long arguments, so that no single step is long;
- filters and attributes are named in lists; all others are refused.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, TemplateReference
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from cutaway.tokenizer.provenance import TEXT_METHODS, MarkedText, Marks, plain
from cutaway.tokenizer.template_allowance import ELEMENT, OBJECT, Allowance, RenderLimits
from cutaway.tokenizer.template_filters import FILTERS, LINE_ENDS, MAX_INTEGER_BITS, MAX_NAME

MAX_FORMAT_FIELD = 999  # the widest that a value is padded
SLOW_WITH_LONG_ARGUMENTS = ("strip", "lstrip", "rstrip", "rfind", "rpartition")
NUMBER_FIELD = 400  # the most characters that %f makes of a number, and some more


class GenerationBlock(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's words for training; here it is just its
    content.
    """

    tags = {"generation"}  # noqa: RUF012 (Jinja's interface)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The content's nodes, in place of the block."""
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
    """Put a call of the environment into every loop and every text of the template, and around every list, mapping
    and spread argument that it writes.
    """

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, self._tick(node, 0))
        if node.test is not None:
            node.test = nodes.And(_call("tick", nodes.Const(ELEMENT)), node.test)
        return node

    def visit_Output(self, node: nodes.Output) -> list[nodes.Node]:  # noqa: N802
        self.generic_visit(node)
        texts = [len(child.data) for child in node.nodes if isinstance(child, nodes.TemplateData)]
        return [self._tick(node, sum(texts) + len(texts)), node] if texts else [node]

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.AssignBlock:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, self._tick(node, OBJECT))
        return node

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("charged", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("charged", node) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("charged", node)

    def visit_Call(self, node: nodes.Call) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        if node.dyn_args is not None:
            node.dyn_args = _call("spread", node.dyn_args)
        if node.dyn_kwargs is not None:
            node.dyn_kwargs = _call("charged", node.dyn_kwargs)
        return node

    visit_Filter = visit_Test = visit_Call  # noqa: N815

    @staticmethod
    def _tick(node: nodes.Node, amount: int) -> nodes.ExprStmt:
        return nodes.ExprStmt(_call("tick", nodes.Const(amount)), lineno=node.lineno)


def _call(method: str, argument: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), [argument], [], None, None)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """One rendering's environment: Hugging Face's settings, the marks of user text, and the allowance."""

    code_generator_class = _ConcatThroughSandbox
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self, marks: Marks, limits: RenderLimits) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, GenerationBlock],
            finalize=self._printed,
            cache_size=0,
        )
        self.marks = marks
        self.allowance = Allowance(limits)
        self.globals = {"range": safe_range, "namespace": Namespace, "dict": dict}
        self.filters = FILTERS

    # -- what the instrumented template calls

    def tick(self, amount: int) -> bool:
        """Charge an amount; true, to stand before a condition."""
        self.allowance.spend(amount)
        return True

    def charged(self, value: Any) -> Any:
        """Return the value; the call itself is charged for what it returns."""
        return value

    def spread(self, values: Iterable[Any]) -> list[Any]:
        """The arguments that ``*values`` stands for."""
        return list(self.allowance.metered(values))

    # -- the allowance

    def admit(self, value: Any) -> Any:
        """Charge a new value, everything in it included, and make marked text out of a string."""
        if not (value is None or isinstance(value, (int, float))):
            self.allowance.spend(OBJECT)
        self.allowance.spend_on(value)
        return self.text(value) if type(value) is str else value

    def text(self, value: str) -> MarkedText:
        """The text as ``MarkedText``. A plain one was written by the template, and gets no marks."""
        return value if isinstance(value, MarkedText) else MarkedText(value, self.marks)

    def printed_text(self, value: Any) -> MarkedText:
        """``str(value)``, charged before it is made."""
        if isinstance(value, str):
            return self.text(value)
        self.allowance.spend_on(value)
        return self.text(str(value))

    # -- what templates do

    @pass_context
    def _printed(self, context: Context, value: Any) -> Any:
        self.allowance.spend(ELEMENT)
        self.allowance.spend_on(value)
        return value

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Jinja's, charged for what the call returns."""
        __self.allowance.spend(0)
        return __self.admit(super().call(__context, __obj, *args, **kwargs))

    def concat(self, parts: Any) -> str:
        """The parts as one text, charged before it is made."""
        texts = [part if isinstance(part, str) else self.printed_text(part) for part in parts]
        self.allowance.spend(OBJECT + sum(map(len, texts)))
        return self.text("".join(texts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Jinja's; operators whose result may be far larger than their operands are charged first."""
        if operator == "*":
            self.allowance.spend(_product_size(left, right))
        elif operator == "**":
            self.allowance.spend(0)
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            self.allowance.spend(OBJECT)
            self._spend_on_format(left, right)
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            return self.concat((left, right))
        return self.admit(super().call_binop(context, operator, left, right))

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Jinja's; of a text, one of the methods that templates may call."""
        if isinstance(obj, str):
            return self._text_method(obj, attribute)
        return super().getattr(obj, attribute)

    def _spend_on_format(self, template: str, values: Any) -> None:
        """Charge what ``template % values`` makes, from above: every number in the template may be a width."""
        fields = template.count("%")
        self.allowance.spend(NUMBER_FIELD * fields)
        for digits in re.finditer(r"\d+", template):
            if len(digits[0]) > len(str(MAX_FORMAT_FIELD)):
                raise SecurityError(f"it pads a formatted value to more than {MAX_FORMAT_FIELD} places")
            self.allowance.spend(int(digits[0]))
        if isinstance(values, Mapping):  # each field may print the longest value
            longest = max(map(self._printed_size, values.values()), default=0)
            self.allowance.spend(longest * fields)
        elif "*" in template:  # widths among the values
            numbers = values if isinstance(values, tuple) else (values,)
            if any(isinstance(number, int) and abs(number) > MAX_FORMAT_FIELD for number in numbers):
                raise SecurityError(f"it pads a formatted value to more than {MAX_FORMAT_FIELD} places")
            self.allowance.spend(MAX_FORMAT_FIELD * template.count("*"))
        self.allowance.spend_on(values)

    def _printed_size(self, value: Any) -> int:
        before = self.allowance.left
        self.allowance.spend_on(value)
        return before - self.allowance.left

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Jinja's, charged; of a text, a method by its name, or marked characters."""
        self.allowance.spend(0)
        if isinstance(obj, str):
            if isinstance(argument, str):
                return self._text_method(obj, plain(argument))
            obj = self.text(obj)
        item = super().getitem(obj, argument)
        return self.admit(item) if isinstance(argument, slice) else item

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Only attributes of kinds of values that templates are made for."""
        open_types = (Mapping, list, tuple, Namespace, LoopContext, Macro, TemplateReference)
        return isinstance(obj, open_types) and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Raises SecurityError: Jinja would render such an attribute as nothing."""
        raise SecurityError(f"it reaches for the attribute {attribute!r} of {type(obj).__name__!r}, which is unsafe")

    def _text_method(self, text: str, name: str) -> Any:
        if name in ("join", "replace"):
            return partial(getattr(self, name), text)
        if name in ("split", "rsplit", "splitlines"):
            return partial(self._split, name, self.text(text))
        if name in SLOW_WITH_LONG_ARGUMENTS:
            return partial(self._search, getattr(self.text(text), name))
        if name in TEXT_METHODS:
            return getattr(self.text(text), name)
        if hasattr(str, name):
            raise SecurityError(f"the method {name!r} of text is not available to templates")
        return self.undefined(obj=text, name=name)

    def join(self, separator: str, items: Any) -> str:
        """``separator.join(items)``, of anything that can be printed."""
        parts: list[Any] = []
        for item in self.allowance.metered(items, ELEMENT + len(separator)):
            parts += [separator, item] if parts else [item]
        return self.concat(parts)

    def replace(self, text: str, old: str, new: str, count: int | None = None) -> str:
        """``text.replace(old, new)``; user text stays user text, template text template text."""
        pieces = self._split("split", self.text(text), old, -1 if count is None else count)
        return self.join(new, pieces)

    def strip(self, text: MarkedText, characters: str | None = None) -> str:
        """``text.strip(characters)``."""
        stripped: str = self._search(text.strip, characters)
        return stripped

    def spend_on_pieces(self, ends: Iterable[Any], price: int = OBJECT) -> None:
        """Charge the pieces of a text, by the places where they end."""
        self.allowance.spend(price)
        for _ in ends:
            self.allowance.spend(price)

    def _split(self, method: str, text: MarkedText, *args: Any, **kwargs: Any) -> list[str]:
        """``split``, ``rsplit`` or ``splitlines``, charged before for the pieces."""
        if method == "splitlines":
            self.spend_on_pieces(LINE_ENDS.finditer(text.plain))
        else:
            named = dict(zip(("sep", "maxsplit"), args, strict=False)) | kwargs
            separator, most = plain(named.get("sep")), named.get("maxsplit", -1)
            blank = not isinstance(separator, str)
            ends = re.finditer(r"\S+", text.plain) if blank else range(text.plain.count(separator))
            self.spend_on_pieces(islice(ends, most) if isinstance(most, int) and most >= 0 else ends)
        cut: Callable[..., list[str]] = getattr(text, method)
        return self._search(cut, *args, **kwargs) if method == "rsplit" else cut(*args, **kwargs)

    def _search(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A method of text that takes the product of both lengths in the worst case."""
        if any(isinstance(arg, str) and len(arg) > MAX_NAME for arg in (*args, *kwargs.values())):
            raise SecurityError(f"it passes more than {MAX_NAME} characters to a search")
        return method(*args, **kwargs)

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
            return len(sequence) * max(times, 0) * (1 if isinstance(sequence, str) else ELEMENT)
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
        _refuse_number()
    return 0


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MAX_INTEGER_BITS:
        _refuse_number()


def _refuse_number() -> NoReturn:
    raise SecurityError(f"it computes an integer of more than {MAX_INTEGER_BITS} bits")
