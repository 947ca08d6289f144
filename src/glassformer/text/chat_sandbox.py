"""The sandbox in which chat templates run: Jinja's own, in which everything that is done is paid for.

A template reaches no files, no modules and no objects of the program, and changes nothing. Time and memory are bounded
by a `Budget`: each loop and macro pays for its body, each operation for the texts it reads and makes.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from string import Formatter
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from .chat_budget import LONGEST, NUMBER, WIDEST, Budget
from .chat_syntax import COMPARED, JOINED, KEPT, PAID, TURN, GenerationBlock, Marks, Rewriter

LARGEST_POWER = 64
LONGEST_SPACE = 1 << 10
MOST_STRIPPED = 1 << 7
ESCAPED = 12  # characters that one may become in the address of a page: %F0%9F%98%80
ROLES = {
    "system", "user", "assistant", "tool", "developer", "function", "ipython", "environment", "observation", "context",
    "model",
}  # fmt: skip
"""Words that may be part of a special token's name, as in '<|' + message.role + '|>'."""

# Methods of a text that look for their arguments in it, those whose result is as long as they are told, and others.
_SEARCHES = {
    "split", "rsplit", "startswith", "endswith", "find", "rfind", "index", "rindex", "count", "partition", "rpartition",
    "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace",
}  # fmt: skip
_WIDENED = {"ljust", "rjust", "center", "zfill"}
_METHODS = _SEARCHES | _WIDENED | {
    "join", "format", "splitlines", "upper", "lower", "title", "capitalize", "swapcase", "casefold", "isalnum",
    "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace",
    "istitle", "isupper",
}  # fmt: skip
# Filters without a place in a conversation, and without a bound; the last one turns &#65; into A.
_WITHOUT = {"urlize", "xmlattr", "wordwrap", "pprint", "striptags"}
# They look at no more than the first or last of a list, or at one after the other when asked for them.
_LIGHT = {
    "length", "count", "first", "last", "default", "d", "items", "list", "reverse", "map", "select", "reject",
    "selectattr", "rejectattr", "attr", "safe", "batch", "random",
}  # fmt: skip
_LISTING = {"list", "sort", "slice", "batch", "title"}  # a text becomes a list of its letters, or of its words
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_WITH_COUNTS = {"batch", "slice", "indent", "round"}
# %(name)9999d, %*d and %c. A name holds no % or bracket, so that no text takes long to look through.
_FIELD = r"%(?:\([^()%]*\))?[^a-zA-Z%(]*"
_UNBOUND_FIELD, _REPR_FIELD = re.compile(_FIELD + r"(?:\(|\*|\d{4}|c)"), re.compile(_FIELD + "[ra]")
_UNBOUND_SPEC = re.compile(r"\{|\d{4}|c$")


class RefusedError(ValueError):
    """The refusal that a template raises with `raise_exception`."""


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

    def __repr__(self) -> str:
        return "<Namespace>"  # what it holds may hold it in turn


class Sandbox(ImmutableSandboxedEnvironment):
    """White space and extras as Hugging Face sets them for chat templates.

    controls    a private character for each special token, by its name, which the template then writes in its place

    A sandbox serves one rendering: what it spends is counted here.
    """

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, controls: Mapping[str, str] | None = None) -> None:
        # Nothing is computed while a template is compiled: what is written must be paid for each time.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, loopcontrols],
            optimized=False,
            finalize=self._finalized,
        )
        self.budget = Budget()
        self.marks = Marks(controls or {})
        self.globals |= {
            "dict": _new_dict,
            "namespace": PlainNamespace,
            "raise_exception": self._refuse,
            "strftime_now": _now,
        }
        del self.globals["lipsum"]
        bounded: dict[str, Callable[..., Any]] = {"tojson": self._to_json, "string": self._as_text, "join": self._join}
        bounded |= {"replace": self._replace, "format": self._format, "center": self._center, "trim": self._trim}
        known = {name: function for name, function in self.filters.items() if name not in _WITHOUT | bounded.keys()}
        self.filters = {name: self._paid(name, function) for name, function in known.items()} | bounded
        self.filters |= {PAID: self.budget.pay, KEPT: self.budget.made}
        self.filters |= {JOINED: self._joined, COMPARED: self._compared, TURN: self._turn}
        tests: dict[str, Any] = dict(self.tests)
        self.tests = {name: test if name == "sameas" else self._test(test) for name, test in tests.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return Rewriter(self.marks).visit(super()._parse(source, name, filename))

    # --- operators, attributes and calls ---

    def call_binop(self, context: Context | None, operator: str, left: Any, right: Any) -> Any:
        """Compute left ∘ right, unless the result would be too large to be meant."""
        if operator == "*":
            for part, times in ((left, right), (right, left)):
                if isinstance(part, str | list | tuple) and isinstance(times, int):
                    self.budget.fits(len(part) * times)
        if operator == "**" and isinstance(right, int) and right > LARGEST_POWER:
            raise SecurityError(f"it asks for the power of {right:,}")
        if operator == "%" and isinstance(left, str):
            fields = left.replace("%%", "")
            if _UNBOUND_FIELD.search(fields):
                raise SecurityError(f"it pads a text without bound: {left!r:.40}")
            size = sum(map(self.budget.written_size, right if isinstance(right, tuple) else (right,)))
            size *= 1 if isinstance(right, tuple) else fields.count("%")
            self.budget.fits(
                len(left) + fields.count("%") * NUMBER + size * (WIDEST if _REPR_FIELD.search(fields) else 1)
            )
        return self.budget.made(self.binop_table[operator](left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return one item of a list or an object; a key may be large."""
        if not isinstance(argument, str | int):
            self.budget.size(argument)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may see an attribute; of texts, the methods that are bounded; of numbers, none."""
        allowed = attr in _METHODS if isinstance(obj, str) else not isinstance(obj, int | float | complex | bytes)
        return allowed and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a macro, a method or a function."""
        self.budget.pay(8 + len(args) + len(kwargs))
        method = getattr(obj, "__wrapped__", obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            named = {name: value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")}
            if method.__name__ == "format":
                self._check_format(owner, args, named)
                return self.budget.made(super().call(context, obj, *args, **kwargs))
            return self._call_text(method.__name__, owner, *args, **named)
        if not isinstance(obj, Macro):
            self.budget.size((owner if isinstance(owner, list) else None, args, kwargs))
        return self.budget.made(super().call(context, obj, *args, **kwargs))

    def _call_text(self, name: str, text: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a text, unless the result would be too long."""
        if name not in _METHODS:
            raise SecurityError(f"it asks a text for {name!r}")
        if name in _SEARCHES and self.marks.found(text) is None:
            # What people say holds no marks: the names of special tokens are found in it as they are spelled.
            spelled = args[:1] if name == "replace" else args
            args = (*self.marks.spelled(spelled), *args[len(spelled) :])
        if name == "join" and args:
            args = (list(args[0]), *args[1:])
        length = len(text) + self.budget.size((args, kwargs))
        for value in (*args, *kwargs.values()):
            self.budget.count(value if name in _WIDENED else None)
        if name.endswith("strip") and args and length - len(text) > MOST_STRIPPED:
            raise SecurityError(f"it strips a text of more than {MOST_STRIPPED} characters")
        if name == "join" and args:
            length += len(text) * len(args[0])
        elif name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
            length += text.count(args[0]) * len(args[1])
        self.budget.fits(length)
        if name in ("split", "rsplit"):
            self.budget.room(text.count(args[0]) if args and isinstance(args[0], str) and args[0] else len(text) // 2)
        elif name == "splitlines":
            self.budget.room(sum(map(text.count, _LINE_ENDS)))
        result = getattr(text, name)(*args, **kwargs)
        for part in result if isinstance(result, list | tuple) else ():
            self.budget.made(part)
        return self.budget.made(result)

    def _check_format(self, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(_UNBOUND_SPEC.search(spec or "") for _, _, spec, _ in Formatter().parse(text)):
            raise SecurityError(f"it pads a text without bound: {text!r:.40}")
        size = sum(map(self.budget.written_size, (*args, *kwargs.values()))) + NUMBER
        self.budget.fits(len(text) + text.count("{") * size)

    # --- filters and tests ---

    def _paid(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter of Jinja's that pays for what it looks at, and for what it makes."""

        @wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:
            self.budget.pay(8)
            if name not in _LIGHT:
                self.budget.size((args, kwargs))
            for value in (*args[1:], *kwargs.values()) if name in _WITH_COUNTS else ():
                self.budget.count(value)
            for value in args[:2] if name in _LISTING else ():
                self.budget.room(len(value) if isinstance(value, str) else 0)
            if name == "indent":
                self._check_indent(*args, **kwargs)
            if name == "urlencode":
                self.budget.fits(ESCAPED * self.budget.size(args))
            if name == "sum" and not isinstance(args[3] if len(args) > 3 else kwargs.get("start", 0), int | float):
                raise SecurityError("it adds up something other than numbers")
            result = function(*args, **kwargs)
            return self._counted(result) if isinstance(result, Iterator) else self.budget.made(result)

        return paid

    def _test(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def test(*args: Any, **kwargs: Any) -> Any:
            return function(*map(self._compared, args), **kwargs)

        return test

    def _counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield values that are made one after the other, each for a few steps."""
        for value in values:
            self.budget.pay(8)
            yield self.budget.made(value) if isinstance(value, list | tuple) else value

    def _compared(self, value: Any) -> Any:
        """Return one side of a comparison; what it is compared with holds the names of special tokens as plain text."""
        self.budget.size(value)
        return self.marks.spelled(value)

    def _as_text(self, value: Any) -> str:
        """Return `str(value)`; only texts themselves keep their marks."""
        if isinstance(value, str):
            return str(value)
        self.budget.fits(self.budget.written_size(value))
        return self.budget.made(self.marks.spelled(str(self.marks.spelled(value))))

    @pass_context
    def _finalized(self, context: Context, value: Any) -> str:
        return self.budget.made(self._as_text(value))

    def _joined(self, parts: Iterable[Any]) -> str:
        texts = [self._as_text(part) for part in parts]
        self.budget.fits(sum(map(len, texts)))
        return self.budget.made("".join(texts))

    def _turn(self, role: Any, left: str, right: str) -> Any:
        """Return left + role + right, where all three together may be the name of a special token."""
        if isinstance(role, str) and role in ROLES:
            return self.marks.put(left + role + right)
        return self.marks.put(left) + role + self.marks.put(right)

    def _replace(self, value: Any, old: Any, new: Any, count: int | None = None) -> str:
        texts = map(self._as_text, (value, old, new))
        return self._call_text("replace", *texts, -1 if count is None else count)

    def _trim(self, value: Any, chars: str | None = None) -> str:
        return self._call_text("strip", self._as_text(value), chars)

    def _center(self, value: Any, width: int = 80) -> str:
        return self._call_text("center", self._as_text(value), width)

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> str:
        return self.call_binop(None, "%", self._as_text(value), kwargs or args)

    def _join(self, value: Iterable[Any], between: Any = "", attribute: str | int | None = None) -> str:
        parts = value if attribute is None else map(make_attrgetter(self, attribute), value)
        return self._call_text("join", self._as_text(between), [self._as_text(part) for part in self._counted(parts)])

    def _check_indent(self, text: Any, width: Any = 4, *args: Any, **kwargs: Any) -> None:
        space = len(width) if isinstance(width, str) else width
        if isinstance(text, str) and isinstance(space, int):
            self.budget.fits(len(text) + (len(text.splitlines()) + 1) * space)

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # Jinja's own filter escapes <, > and & for web pages.
        self.budget.size((value, separators))
        for space in (indent, *(separators if isinstance(separators, list | tuple) else ())):
            if (len(space) if isinstance(space, str) else space or 0) > LONGEST_SPACE:
                raise SecurityError("it spreads JSON without bound")
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        length, parts = 0, []
        for part in encoder.iterencode(self.marks.spelled(value)):
            length += len(part)
            if length > LONGEST:
                self.budget.fits(length)
            parts.append(part)
        return self.budget.made("".join(parts))

    def _refuse(self, message: Any) -> None:
        raise RefusedError(self._as_text(self.marks.spelled(message)))


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    # A function, because the class would lead to the attributes of classes.
    return dict(*args, **kwargs)


def _now(pattern: str) -> str:
    if len(pattern) > LONGEST_SPACE:  # the C library may take hundreds of bytes for each character
        raise SecurityError(f"it asks for a date of {len(pattern):,} characters")
    return datetime.now().strftime(pattern)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"it stores {name!r} in a namespace; names must not begin with an underscore")
