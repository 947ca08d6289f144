"""Refusals of arguments that public functions cannot use: one sentence, and a traceback of the caller's line.

    @short_traces
    def lens(run: Run, *, at: Sequence[str] | None = None) -> Lens: …

    lens(model)        ConfigError: run is a TrainedModel; lens takes Run

Arguments are compared with the annotations when a call has failed, and those of `glassformer.interpret` before it.
"""

import functools
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, TypeVar, get_type_hints

from .errors import DEBUG, ConfigError, GlassformerError, did_you_mean
from .settings import fits

HERE = str(Path(__file__).parents[1])
TREES = ("params", "state")
REMEDIES = {
    "Run": "watch a model first: model.watch(text), or watch(model, params, batch)",
    "LoadedModel": "pass what gf.load or gf.train returns, or gf.TrainedModel(model, params)",
    "Model": "pass gf.build(…), or what gf.load or gf.train returns, which reads texts: model.watch(text)",
    "Batch": 'model.batch("a text"), or gf.Batch(tokens)',
    "Logit": 'ask for Logit(" Paris"), Logit(7, against=3); or, of gradients and patches, for Loss()',
    "Place": 'say where: at("logits"), at("blocks.0.attention.output.x", head=1)',
    "Change": 'make one: zero("blocks.0.attention"), put, add, scale, take, …',
    "dict": "pass what model.init(seed) returns, or the `params` of what gf.load or gf.train returns",
}
"""How to get what a function takes, by its class."""
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "True or False",
    "ndarray": "an array",
    "LoadedModel": "TrainedModel",
}
UNFIT = re.compile(
    "string to float|float.. argument must|inhomogeneous|not supported between|truth value of an|to unpack|ufunc '"
    "|attribute '(dtype|ndim|shape|_asdict|get)'|not compatible|tuple index out|not iterable|empty name"
)
"""What Python and NumPy say of values of the wrong kind or shape."""
FAILURES = (GlassformerError, TypeError, AttributeError, LookupError, ValueError)

Owner = TypeVar("Owner")


def short_traces(owner: Owner, *, is_strict: bool = False) -> Owner:
    """Refuse arguments of the wrong kind in one sentence, and leave the library's frames out of tracebacks.

    owner       a function, or a class: its public methods, and how it is made and indexed
    is_strict   look at the arguments before the call, of a class those that make it, not only when it has failed

    GLASSFORMER_DEBUG=1 keeps the frames inside the library.
    """
    if isinstance(owner, type):
        for name, method in list(vars(owner).items()):
            if isinstance(method, FunctionType) and (name in ("__init__", "__getitem__") or not name.startswith("_")):
                setattr(owner, name, short_traces(method, is_strict=is_strict and name == "__init__"))
        return owner
    function: Any = owner

    @functools.wraps(function)
    def refusing(*args: Any, **settings: Any) -> Any:
        try:
            if is_strict and (refusal := misuse(function, args, settings)):
                raise refusal
            return function(*args, **settings)
        except FAILURES as error:
            raise instead_of(error, function, args, settings)

    return refusing  # type: ignore[return-value]


def public(
    namespace: dict[str, Any], names: Iterable[str], *, is_strict: bool = False, has_makers: bool = False
) -> None:
    """Give the functions of a public module, and the classes of a strict one, short tracebacks.

    has_makers   look at the arguments that its classes are made of, too
    """
    for name in names:
        value = namespace[name]
        if isinstance(value, FunctionType):
            namespace[name] = short_traces(value, is_strict=is_strict)
            namespace[name].__module__ = namespace["__name__"]  # where pickle finds it
        elif isinstance(value, type) and has_makers:
            made = vars(value).get("__init__")
            if isinstance(made, FunctionType) and not hasattr(made, "__wrapped__"):
                # One that was written checks what it is given, and so says more than its types do.
                is_generated = hasattr(value, "__dataclass_fields__") and not hasattr(value, "__post_init__")
                value.__init__ = short_traces(made, is_strict=is_generated)  # type: ignore[misc]
        elif isinstance(value, type) and is_strict:
            short_traces(value, is_strict=not hasattr(value, "__dataclass_fields__"))  # those are made by the thousand


def shortened(error: GlassformerError) -> GlassformerError:
    """Return an error whose traceback leaves out the library's frames, but not those of functions that it was given."""
    trace, kept = error.__traceback__, []
    while trace is not None:
        if _is_debugged() or not trace.tb_frame.f_code.co_filename.startswith(HERE):
            kept.append(trace)
        trace = trace.tb_next
    for entry in reversed(kept):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return error.with_traceback(trace)


def instead_of(error: Exception, function: Any, args: tuple[Any, ...], settings: dict[str, Any]) -> Exception:
    """Return what a call raises: its own refusal with a short traceback, a refusal of its arguments, or the error."""
    refusal = shortened(error) if isinstance(error, GlassformerError) else misuse(function, args, settings, error)
    if refusal is None:
        return error
    refusal.__cause__ = None  # as `from None` does
    return refusal


def misuse(
    function: Any, args: tuple[Any, ...], settings: dict[str, Any], error: BaseException | None = None
) -> ConfigError | None:
    """Return what is wrong with the arguments of a call; None where nothing is known to be.

    error   what they led to
    """
    if error is not None and _is_debugged():
        return None
    signature, hints = _annotated(function)
    if hasattr(function, "pair"):  # of a trained model, in place of a model and its parameters
        args, settings = function.pair(args, settings)
    name = function.__qualname__.removesuffix(".__init__")
    taken = [argument for argument in signature.parameters if argument != "self"]
    call = f"{name}({', '.join(taken)})"
    try:
        for word, value in signature.bind_partial(*args, **settings).arguments.items():
            is_many = signature.parameters[word].kind is signature.parameters[word].VAR_POSITIONAL
            for argument in value if is_many else [value]:
                if not fits(argument, hints.get(word, Any)):
                    return _refusal(name, word, argument, hints[word])
        signature.bind(*args, **settings)
    except TypeError as wrong:
        unknown = [word for word in settings if word not in taken]
        if unknown:
            return ConfigError(f"{name} has no argument {unknown[0]!r}", hint=did_you_mean(unknown[0], taken))
        more = f"; a batch is model.watch(text).batch, {REMEDIES['Batch']}" if "'batch'" in str(wrong) else ""
        return ConfigError(f"{name}: {wrong}", hint=f"call it as {call}{more}")
    message = "" if error is None or _is_of_user(error) else str(error)
    match = re.search(r"unexpected keyword argument '(\w+)'", message)
    if match and match[1] in settings:
        return ConfigError(f"{name} has no argument {match[1]!r}", hint=f"help({name}) explains {call}")
    if UNFIT.search(message):
        return ConfigError(f"{name} cannot use what it was given: {message}", hint=f"help({name}) explains {call}")
    return None


def _is_of_user(error: BaseException) -> bool:
    """Return whether an error passed through a function that the library was given."""
    trace, known = error.__traceback__, (HERE, sys.prefix, sys.base_prefix, "<string>", "<frozen")
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(known):
        trace = trace.tb_next
    return trace is not None


@functools.cache
def _annotated(function: Any) -> tuple[Any, dict[str, Any]]:
    """Return the signature of a function and the types that it says its arguments have."""
    import inspect  # slow to import

    signature = inspect.signature(function)
    try:
        hints = get_type_hints(function)
    except NameError:  # a class that is imported for type checkers alone
        hints = {}
    of_settings = {word for word, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD}
    hints = {word: hint for word, hint in hints.items() if word not in of_settings}
    for word in TREES:
        if word in hints:
            hints[word] = dict if signature.parameters[word].default is inspect.Parameter.empty else dict | None
    return signature, hints


def _refusal(name: str, word: str, value: Any, hint: Any) -> ConfigError:
    wanted = hint.__name__ if isinstance(hint, type) else re.sub(r"[\w.]+\.| \| None", "", str(hint))
    kinds = wanted.split(" | ")
    wanted = " or ".join(WORDS.get(kind, kind) for kind in kinds)
    remedy = next((text for kind, text in REMEDIES.items() if kind in kinds), f"pass {wanted}: help({name})")
    is_plain = value is None or isinstance(value, str | int | float | list | tuple)
    shown = f"{value!r:.60}" if is_plain else f"a {type(value).__name__}"
    return ConfigError(f"{word} is {shown}; {name} takes {wanted}", hint=remedy)


def _is_debugged() -> bool:
    return os.environ.get(DEBUG, "") not in ("", "0")
