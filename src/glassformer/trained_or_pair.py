"""Functions of a model and its parameters take a trained model in place of both.

@trained_or_pair
def detect_heads(model: Model, params: Tree, *, length: int | None = None) -> …

detect_heads(gf.load("smollm2"))       detect_heads(model, params)
"""

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from .core.arrays import Tree
from .models import Model
from .trained_model import TrainedModel

P = ParamSpec("P")
Result = TypeVar("Result", covariant=True)


class TrainedOrPair(Protocol[P, Result]):
    """A function of a trained model, or of a model and its parameters, and of more."""

    @overload
    def __call__(self, model: TrainedModel, /, *args: P.args, **settings: P.kwargs) -> Result: ...
    @overload
    def __call__(self, model: Model, params: Tree, /, *args: P.args, **settings: P.kwargs) -> Result: ...


def trained_or_pair(function: Callable[Concatenate[Model, Tree, P], Result]) -> TrainedOrPair[P, Result]:
    """Let a function of (model, params, …) take a trained model in place of both, and its names of the tokens."""
    has_labels = "labels" in inspect.signature(function).parameters

    def pair(args: tuple[Any, ...], settings: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the two parts of a trained model in its place."""
        if not args or not isinstance(args[0], TrainedModel):
            return args, settings
        named = {"labels": import_module(f"{__package__}.interpret.reading").labels_of(args[0])} if has_labels else {}
        params = import_module(f"{__package__}.interpret.packed").unpacked(args[0].params)
        return (args[0].model, params, *args[1:]), {**named, **settings}

    @functools.wraps(function)
    def taking(*args: Any, **settings: Any) -> Result:
        args, settings = pair(args, settings)
        return function(*args, **settings)

    taking.pair = pair  # type: ignore[attr-defined]
    return cast("TrainedOrPair[P, Result]", taking)
