"""The sandbox in which chat templates run: Jinja's own, with bounds on loops and on what grows by itself.

The bounds stop a template that loops without end or doubles a text over and over. A hostile one may still find ways to
spend memory, through padding for instance; nothing it does reaches files, modules or the objects of the program.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing

MOST_ROUNDS = 1_000_000
LONGEST = 1 << 24
LARGEST_POWER = 64
ROUNDS = "rounds so far"
"""Where a rendering counts its loops. No template can name it, because it is not one word."""


class Generation(Extension):
    """The block {% generation %}: it marks what the assistant said, for training; here it is only what stands in it."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the content of the block in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class PlainNamespace(Namespace):
    """Jinja's `namespace`, without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


class Sandbox(ImmutableSandboxedEnvironment):
    """White space and extras as Hugging Face sets them for chat templates; loops are counted, growth is bounded."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        self.filters["counted"] = _counted
        self.filters["measured"] = _measured
        self.globals["dict"] = _new_dict
        self.globals["namespace"] = PlainNamespace

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute left ∘ right, unless the result would be too large to be meant."""
        if operator == "*":
            for part, times in ((left, right), (right, left)):
                if isinstance(part, str | list | tuple) and isinstance(times, int) and len(part) * times > LONGEST:
                    raise SecurityError(f"it repeats {len(part):,} characters or items {times:,} times")
        if operator == "**" and isinstance(right, int) and right > LARGEST_POWER:
            raise SecurityError(f"it asks for the power of {right:,}")
        if operator == "%" and isinstance(left, str) and re.search(r"%[^a-zA-Z%]*(\*|\d{5})", left):
            raise SecurityError(f"it pads a text without bound: {left!r:.40}")
        return _measured(super().call_binop(context, operator, left, right))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for loop in template.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, "counted")
        for joined in list(template.find_all(nodes.Concat)):
            joined.nodes = [_filtered(nodes.Concat(joined.nodes, lineno=joined.lineno), "measured")]
        return template


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _counted(context: Context, values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values of a loop; stop a template whose loops together go round too often."""
    spent = context.resolve_or_missing(ROUNDS)
    for value in values:
        if spent is not missing:
            spent[0] += 1
            if spent[0] > MOST_ROUNDS:
                raise SecurityError(f"its loops go round more than {MOST_ROUNDS:,} times")
        yield value


def _measured(value: Any) -> Any:
    """Return a value that is not too large."""
    too_long = isinstance(value, str | list | tuple) and len(value) > LONGEST
    if too_long or (isinstance(value, int) and value.bit_length() > 1 << 12):
        raise SecurityError("a text or a number in it grows without bound")
    return value


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    # A function, because the class would lead to the attributes of classes.
    return dict(*args, **kwargs)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"it stores {name!r} in a namespace; names must not begin with an underscore")
