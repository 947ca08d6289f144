"""The arguments of a training, which `gf.train` and `gf.Loop` share."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar, get_type_hints

from ..config import TransformerConfig
from ..core.arrays import Tree
from ..core.errors import ConfigError
from ..core.execution import Execution
from ..data import TASKS, Task
from ..models import PRESETS, Decoder, Encoder, EncoderDecoder, Model
from ..training.trainable import LoRA
from .tasks import named_data
from .trained_model import TrainedModel

Function = TypeVar("Function", bound=Callable[..., Any])

LONGEST = 60
"""Characters of a list or a text that an error message repeats."""


@dataclass(frozen=True, eq=False)
class Arguments:
    """What is trained, on what and how; `gf.train` explains each argument."""

    data: Any
    model: Any = None
    steps: int | None = None
    seed: int = 0
    lora: LoRA | int | None = None
    validation: Any = None
    params: Tree | None = None
    out: str | Path | None = None
    record: bool = False
    execution: Execution | None = None
    settings: Mapping[str, Any] = ()  # type: ignore[assignment]  # of the task, the model and the recipe

    @classmethod
    def of(cls, data: Any, model: Any, options: Mapping[str, Any]) -> Self:
        """Return arguments; the options that are none of them are settings."""
        named = {name: value for name, value in options.items() if name in OPTIONS}
        return cls(data, model, **named, settings={name: options[name] for name in options if name not in OPTIONS})

    @property
    def built(self) -> Model | None:
        """The model that exists already, where it is not one to be built."""
        if isinstance(self.model, TrainedModel):
            return self.model.model
        return self.model if isinstance(self.model, Model) else None

    @property
    def custom_model(self) -> Model | None:
        """The model that exists already, where it is of the user's own class."""
        return None if type(self.built) in (Encoder, Decoder, EncoderDecoder) else self.built

    @property
    def adapters(self) -> LoRA | None:
        """The low-rank matrices that are trained beside a frozen model."""
        if self.lora is not None and not isinstance(self.lora, int | LoRA):
            raise ConfigError(f"lora is {self.lora!r}", hint="pass a rank, such as 8, or gf.training.LoRA(rank=8)")
        return LoRA(rank=self.lora) if isinstance(self.lora, int) else self.lora

    def check(self) -> None:
        """Refuse arguments that contradict each other."""
        if self.record and self.out is None:
            fact = "a training in memory is not recorded: its states are kept in the folder of the run"
            raise ConfigError(fact, hint='name one: gf.train(…, out="runs/mine", record=True)')
        if self.validation is not None and (isinstance(self.data, Task) or named_data(self.data) is not None):
            fact = "validation is given, but the task holds out data of its own"
            raise ConfigError(fact, hint="leave validation out")
        if isinstance(self.model, TrainedModel):
            if self.params is not None:
                raise ConfigError("params are given, and a trained model has its own", hint="leave params out")
        elif self.lora is not None:
            raise ConfigError("LoRA needs a trained model to start from", hint="pass one: gf.load(…)")


OPTIONS = tuple(field.name for field in fields(Arguments) if field.name not in ("data", "model", "settings"))


def takes_arguments(function: Function) -> Function:
    """Show the arguments of a training in the signature of a function that takes them as `**options`."""
    signature = inspect.signature(function)
    own = {name: one for name, one in signature.parameters.items() if name != "options"}
    hints = {name: hint for name, hint in get_type_hints(Arguments).items() if name in OPTIONS}
    defaults = {field.name: field.default for field in fields(Arguments)}
    positional = [one for one in own.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
        for name, hint in hints.items()
    ]
    settings = inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD, annotation=Any)
    named = [*positional, *shared, *(one for one in own.values() if one not in positional), settings]
    function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    function.__annotations__ = {**function.__annotations__, **hints}
    return function


def check_order(function: str, data: Any, model: Any, options: Mapping[str, Any]) -> None:
    """Refuse a call with the model first and the data second, as in version 0.2; show the call as it is written now."""
    if not _is_old_order(data, model):
        return
    fact = f"{function} takes the data first, and the model second, which is optional"
    if model is None or _is_model(model):
        fact += "; here there is no data"
        first, second = "data", data if model is None else model
    else:
        first, second = _written(model, "data"), data
    words = [first, *([] if second is None else [_written(second, "model")])]
    words += [f"{name}={_written(value, name)}" for name, value in options.items()]
    raise ConfigError(fact, hint=f"write gf.{function}({', '.join(words)})")


def _is_model(value: Any) -> bool:
    return isinstance(value, Model | TransformerConfig | TrainedModel)


def _is_old_order(data: Any, model: Any) -> bool:
    """Return whether a call has the model first and the data second."""
    if data is None or _is_model(data):
        return True
    if not isinstance(data, str) or data not in PRESETS or _is_model(model):
        return False
    # The first is the name of a preset, but some, such as "counting", are those of tasks, too.
    if model is None:
        return not _names_data(data)
    if isinstance(model, str):
        return model not in PRESETS and (_names_data(model) or not _names_data(data))
    return True


def _names_data(name: str) -> bool:
    return name in TASKS or Path(name).exists()


def _written(value: Any, word: str) -> str:
    """Return a value as it stands in a program, or the word for one that is long or no literal."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    text = repr(value)
    return text if _is_literal(value) and len(text) <= LONGEST else word


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_literal, value))
    if isinstance(value, dict):
        return all(map(_is_literal, [*value, *value.values()]))
    return value is None or type(value) in (str, bytes, int, float, bool)
