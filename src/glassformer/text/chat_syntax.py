"""The rewriting of a chat template before it runs: its special tokens are marked, and all that it does is counted.

Special tokens that the template writes become private characters, one for each. Whatever happens to the texts later,
no message can turn into one of these: this is what keeps users from ending their own turn.
"""

# ruff: noqa: N802, N815
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

# Our filters; the leading space keeps their names from clashing with others.
PAID, KEPT, JOINED, COMPARED, TURN = " paid", " kept", " joined", " compared", " turn"


class GenerationBlock(Extension):
    """The block {% generation %}, which marks the assistant's words for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the content of the block in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class Marks:
    """Private characters that stand for special tokens: put in for their names, and spelled out again.

    controls    the character of each special token, by its name
    """

    def __init__(self, controls: Mapping[str, str]) -> None:
        self.controls = controls
        self._names = {mark: name for name, mark in controls.items()}
        longest_first = sorted(controls, key=len, reverse=True)
        self._name = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._mark = re.compile(f"[{''.join(self._names)}]" if controls else "(?!)")

    def found(self, text: str) -> str | None:
        """Return the first private character in a text."""
        match = self._mark.search(text)
        return None if match is None else match[0]

    def put(self, text: str) -> str:
        """Return text of the template with a private character for each name of a special token."""
        return self._name.sub(lambda match: self.controls[match[0]], text)

    def spelled(self, value: Any) -> Any:
        """Return a value with the names of special tokens, as plain text, for their private characters."""
        if isinstance(value, str):
            return self._mark.sub(lambda match: self._names[match[0]], value)
        if not self.controls:
            return value
        if type(value) in (list, tuple):
            return type(value)(map(self.spelled, value))
        if type(value) is dict:
            return {self.spelled(key): self.spelled(item) for key, item in value.items()}
        return value


class Rewriter(NodeTransformer):
    """Marks the special tokens of a template, and lets everything that can grow or repeat pass through a filter.

    Jinja calls each method by the type of its node; of other nodes, the parts are rewritten.
    """

    def __init__(self, marks: Marks) -> None:
        self.marks = marks

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        return nodes.Const(self.marks.put(node.value), lineno=node.lineno) if isinstance(node.value, str) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return nodes.TemplateData(self.marks.put(node.data), lineno=node.lineno)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        node.nodes = _with_turns(node.nodes, _as_text)
        return self.generic_visit(node)

    def visit_Add(self, node: nodes.Add) -> nodes.Node:
        first, *rest = (self.visit(term) for term in _with_turns(_terms(node), lambda role: role))
        for term in rest:
            first = nodes.Add(first, term, lineno=node.lineno)
        return first

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = [self.visit(part) for part in _with_turns(node.nodes, _as_text)]
        return _filtered(nodes.Tuple(parts, "load", lineno=node.lineno), JOINED)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        if node.name != TURN:
            return self.generic_visit(node)
        # Its arguments, what stands around the role, are marked together with it, when it is known.
        node.node = self.visit(node.node) if node.node is not None else None
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        sides: list[Any] = [node, *node.ops]
        for side in sides:
            side.expr = _filtered(side.expr, COMPARED)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return _filtered(self.generic_visit(node), KEPT)

    visit_Dict = visit_List

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, KEPT) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        if isinstance(node.arg, nodes.Const):  # a key, which is no text to be written
            node.node = self.visit(node.node)
            return node
        self.generic_visit(node)
        return _filtered(node, KEPT) if isinstance(node.arg, nodes.Slice) else node

    def visit_Block(self, node: Any) -> nodes.Node:
        payment = _payment(node)
        self.generic_visit(node)
        node.body = [nodes.ExprStmt(payment, lineno=node.lineno), *node.body]
        return node

    visit_Macro = visit_CallBlock = visit_Block

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.visit_Block(node)
        if node.test is not None:
            # `not` the payment, which is nothing: the test is then asked as it was.
            payment = nodes.Not(_payment(node.test), lineno=node.lineno)
            node.test = nodes.And(payment, node.test, lineno=node.lineno)
        return node


def _filtered(node: nodes.Node, name: str, *args: nodes.Node) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _payment(node: nodes.Node) -> nodes.Filter:
    """Return what pays for the body of a loop or a macro each time: its parts, and the text it writes itself."""
    parts = node.find_all(nodes.Node)
    cost = 8 + sum(len(part.data) if isinstance(part, nodes.TemplateData) else 1 for part in parts) // 4
    return _filtered(nodes.Const(cost, lineno=node.lineno), PAID)


def _as_text(node: nodes.Node) -> nodes.Node:
    return _filtered(node, "string")


# --- names of special tokens that hold a role ------------------------------------------------------------------------


def _terms(node: nodes.Node) -> list[nodes.Node]:
    """Return the terms of a sum, from left to right."""
    terms: list[nodes.Node] = []
    while isinstance(node, nodes.Add):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]


def _with_turns(parts: list[Any], prepared: Callable[[nodes.Node], nodes.Node]) -> list[Any]:
    """Return parts that are joined, with one part for each of '<|' + message.role + '|>'; the role is prepared."""
    done: list[Any] = []
    for part in parts:
        is_turn = len(done) > 1 and _is_role(done[-1]) and None not in (_literal(done[-2]), _literal(part))
        if is_turn:
            role, left = done.pop(), done.pop()
            sides = [nodes.Const(_literal(side), lineno=side.lineno) for side in (left, part)]
            part = _filtered(prepared(role), TURN, *sides)
        done.append(part)
    return done


def _literal(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.TemplateData):
        return node.data
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else None


def _is_role(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getitem):
        return _literal(node.arg) == "role"
    if isinstance(node, nodes.Getattr):
        return node.attr == "role"
    return isinstance(node, nodes.Name) and node.name == "role"
