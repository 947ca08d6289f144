"""Changes while a model writes: the changes of `changes`, made to every token as it is read.

    model.generate("I went to the", changes=[add("blocks.12", 8 * v)])
    model.generate(prompt, changes=[zero("blocks.3.attention.output.x", head=1, position="new")])

A position is that of a token in its own sequence: a number, numbers, a slice such as slice(4, None), "prompt", "new",
or None for all. The model writes what it would write without a cache, if it ran on the whole text with these changes
for every token.

Layers are the same with a cache as without one, so a value is made by the same op of the same block. An observing
engine changes it there. Blocks without changes, and all other ops, run on the engine in use, by its kernels.
"""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import Array, Tree, cast, namespace
from ..dispatch import Engine, current, use_engine
from ..errors import ConfigError, LengthError, ShapeError
from ..generation import texts
from ..generation.conversation import Conversation, reply, turns_of
from ..generation.texts import Generation, Stream, encode_prompts
from ..layers import Cache
from ..models import EncoderDecoder, Model
from ..setting import texts_of
from ..trained_model import TrainedModel
from ..tree import flatten, rebuilt
from .activations import activations
from .changes import Change, listed
from .names import RETURNED
from .packed import unpacked
from .steering_plan import BY_TOKEN, PROMPT, STACKS, ChangePlan, Part, never_made, plan_changes, sorted_changes
from .where import axes_of, is_of_source


def steered(model: TrainedModel, changes: Sequence[Change], prompt: int = 0) -> TrainedModel:
    """Return a model that makes changes while it writes; `prompt` is how many tokens it reads before it begins to."""
    built, params = changed_model(model.model, model.params, changes, prompt)
    return replace(model, built=built, params=params)


def generate(model: TrainedModel, prompt: str | Sequence[str], changes: Any, settings: Any) -> Any:
    """Answer prompts with changes; see `generation.generate`."""
    _check_slide(settings)
    prompts = [prompt] if isinstance(prompt, str) else texts_of(prompt)
    read, sources = encode_prompts(model, prompts, truncate=settings.get("truncate", False))
    lengths, changes = [len(ids) for ids in read], listed(changes)
    if len({*lengths}) > 1 and any(isinstance(change.where.position, str) for change in changes):
        return [generate(model, own, changes, settings) for own in prompts]
    warned = _reaching(model, changes, max(lengths, default=0), sources, settings)
    return warned(texts.generate(steered(model, changes, *lengths[:1]), prompt, **settings))


def stream(model: TrainedModel, prompt: str, changes: Any, settings: Any) -> Stream:
    """Answer a prompt piece by piece, with changes; see `generation.stream`."""
    _check_slide(settings)
    (ids,), sources = encode_prompts(model, texts_of([prompt]), truncate=settings.get("truncate", False))
    warned = _reaching(model, listed(changes), len(ids), sources, settings)
    found = texts.stream(steered(model, listed(changes), len(ids)), prompt, **settings)
    found.at_end = warned
    return found


def chat(model: TrainedModel, messages: Any, changes: Any, settings: Any) -> Any:
    """Answer the last message of a conversation, with changes; see `generation.reply`."""
    read = Conversation(model).encoded(turns_of(messages))
    warned = _reaching(model, listed(changes), len(read), None, settings)
    return warned(reply(steered(model, listed(changes), len(read)), messages, **settings))


def _reaching(
    model: TrainedModel, changes: list[Change], prompt: int, sources: list[Array] | None, settings: Any
) -> Callable[[Any], Any]:
    """Refuse changes at positions that no answer can reach; return what warns of those that answers did not reach."""
    source = max(map(len, sources or ()), default=0)

    def missed(read: int) -> Iterator[Change]:
        for change in changes:
            places = np.arange(source if is_of_source(change.name) else read)
            asked = change.where.position
            if asked is not None and not _matches(asked, places, prompt).any():
                yield change

    new = settings.get("max_new_tokens", texts.MAX_NEW_TOKENS)
    most = min(prompt + new - 1, model.config.context) if isinstance(new, int) else model.config.context
    for change in missed(most):
        fact = f"the change {change.word!r} of {change.name} is never made: the model reads {most:,} tokens at most"
        raise LengthError(fact, hint="name earlier positions, or write more tokens; the last one written is not read")

    def warned(answers: Any) -> Any:
        each = [answers] if isinstance(answers, Generation) else np.ravel(np.array(answers, dtype=object))
        read = prompt + max((len(answer.ids) for answer in each), default=0) - 1
        log = logging.getLogger("glassformer").warning
        for change in missed(read):
            text = "the change %r of %s altered nothing: the model read %d tokens, none of them at its positions"
            log(text, change.word, change.name, read)
        for change in changes:
            if change.function is None and change.factor == 1 and not np.any(change.value):
                log("the change %r of %s altered nothing", change.word, change.name)
        return answers

    return warned


def _check_slide(settings: dict[str, Any]) -> None:
    """Let a changed text end where the context does: a window that moves would give every token another position."""
    if settings.setdefault("slide", False):
        raise ConfigError("a model that makes changes cannot slide past its context", hint="leave slide out")


def changed_model(model: Model, params: Tree, changes: Sequence[Change], prompt: int) -> tuple[Model, Tree]:
    """Return a model, and its parameters, that makes these changes wherever it reads tokens with a cache.

    prompt   how many tokens the prompts have
    """
    inputs, values = sorted_changes(changes, params)
    leaves = flatten(params)
    for change in inputs:
        leaves[change.name] = change.apply(np.asarray(unpacked(leaves[change.name])), model.config.heads)
    plan = plan_changes(model, params, values, prompt)
    own = type(f"Changed{type(model).__name__}", (_ChangedReading, type(model)), {"plan": plan})
    changed: Any = object.__new__(own)
    changed.__dict__.update(vars(model))
    return changed, rebuilt(params, leaves) if inputs else params


class _ChangedReading:
    """Reads with changes; stands before the class of a model."""

    plan: ChangePlan

    def read(
        self, params: Tree, tokens: Array, cache: Cache, *, positions: Array | None = None, **settings: Any
    ) -> Any:
        places = cache.rows(tokens.shape[-1]) if positions is None else positions
        section = int(isinstance(self, EncoderDecoder))  # the encoder has read the source
        with ChangingEngine(self.plan, current(), params, places, section).changing():
            return super().read(params, tokens, cache, positions=positions, **settings)  # type: ignore[misc]

    def new_cache(self, *arguments: Any, **settings: Any) -> Any:
        if not arguments:
            return super().new_cache()  # type: ignore[misc]
        places = np.arange(arguments[1].shape[-1])
        with ChangingEngine(self.plan, current(), arguments[0], places).changing(of_source=True):
            return super().new_cache(*arguments, **settings)  # type: ignore[misc]

    def predict(self, params: Tree, batch: Any, **settings: Any) -> Any:
        raise ConfigError(
            "a model that makes changes reads with a cache",
            hint="leave cache=False out; or make the changes on a text, model.watch(text).changed(…)",
        )


class ChangingEngine(Engine):
    """Changes values where ops make or read them; everything else runs on another engine."""

    observes = True

    def __init__(self, plan: ChangePlan, base: Engine, params: Tree, positions: Array, section: int = 0) -> None:
        self.plan, self.base, self.positions = plan, base, positions
        self.name, self.library = base.name, base.library
        self.labels = plan.new_keys(params, section)
        self.made: set[Change] = set()

    @contextmanager
    def changing(self, *, of_source: bool = False) -> Iterator[None]:
        """Use the engine for one reading, of the source or of what is written, which must make all its changes."""
        with use_engine(self):
            yield
        for change in (change for placed in self.plan.placed.values() for _, change in placed):
            if is_of_source(change.name) == of_source and change not in self.made:
                raise never_made(change)

    def observe(self, function: Any, written: Callable[..., Any], arguments: tuple[Any, ...], settings: Any) -> Any:
        """Do one call: with changes, as written with changes inside, or on the other engine."""
        name = str(function.observed_as)
        with self.labels.entered(name, arguments) as key:
            if name.endswith(".read_blocks") and type(arguments[3]) is Cache:  # else a compiler sees all blocks at once
                return self._read_blocks(function, *arguments)
            for place, change in self.plan.placed.get(key, ()):
                if isinstance(place, int) and place != RETURNED:
                    value = self._changed(change, arguments[place])
                    arguments = (*arguments[:place], value, *arguments[place + 1 :])
            if key in self.plan.opened or name.endswith(STACKS):
                result = written(*arguments, **settings)
            else:
                with use_engine(self.base):
                    result = function(*arguments, **settings)
        for place, change in self.plan.placed.get(key, ()):
            if place == RETURNED:
                y, *rest = result if isinstance(result, tuple) else (result,)
                y = self._changed(change, y)
                result = (y, *rest) if isinstance(result, tuple) else y
        return result

    def _read_blocks(self, function: Any, stack: Any, params: Tree, x: Array, cache: Cache, rotation: Any) -> Array:
        """Read one token through all blocks: those without changes inside together, as the other engine does it."""
        if cache not in self.plan.parts:
            self.plan.parts[cache] = list(self._parts(stack, params, cache))
        for part in self.plan.parts[cache]:
            part.cache.mask, part.cache.memory_mask = cache.mask, cache.memory_mask
            if part.is_opened:
                x = function.__wrapped__(part.stack, part.params, x, part.cache, rotation)
            else:
                with use_engine(self.base):
                    x = function(part.stack, part.params, x, part.cache, rotation)
            for change in part.after:
                x = self._changed(change, x)
        return x

    def _parts(self, stack: Any, params: Tree, cache: Cache) -> Iterator[Part]:
        """Cut a stack after each block whose result is changed, and around each that is changed inside."""
        names = [self.labels.blocks[id(block)] for block in params["blocks"]]
        changes = [self.plan.changes_of(name) for name in names]
        opened = [any(change.name != name for change in own) for name, own in zip(names, changes, strict=True)]
        edges = {0, len(names), *(n + 1 for n, own in enumerate(changes) if own)} | {
            n for n, is_opened in enumerate(opened) if is_opened
        }
        for start, stop in pairwise(sorted(edges)):
            part = copy.copy(cache)
            part.blocks = cache.blocks[start:stop]
            own = {**params, "blocks": params["blocks"][start:stop]}
            after = [] if opened[stop - 1] else changes[stop - 1]
            yield Part(replace(stack, layers=stop - start), own, part, opened[start], after)

    def _changed(self, change: Change, x: Array) -> Array:
        """Return a value with a change at the tokens that it is about."""
        self.made.add(change)
        xp, where = namespace(x), change.where
        axes = axes_of(change.name, x.ndim)
        chosen: Any = np.ones((1,) * x.ndim, dtype=bool)
        if where.position is not None:
            number = axes.index("position")
            chosen = _spread(self._at(where.position, change.name, x.shape[number]), x.ndim, number)
        one = [1 if axis in BY_TOKEN else size for axis, size in zip(axes, x.shape, strict=True)]  # of one token
        inside = replace(where, position=None).index(change.name, tuple(one), self.plan.heads)
        selected = np.zeros(one, dtype=bool)
        selected[inside] = True
        if change.function is not None:
            entries = zip(axes, inside, x.shape, strict=True)
            handed = [np.arange(size) if axis in BY_TOKEN else part.reshape(-1) for axis, part, size in entries]
            back = [np.zeros(size, np.int64) for size in x.shape]
            for places, numbers in zip(back, handed, strict=True):
                places[numbers] = np.arange(len(numbers))
            y = change.function(x[np.ix_(*handed)])[np.ix_(*back)]
        else:
            y = change.factor * x + xp.asarray(_value(change, inside, one))
        return cast(xp.where(xp.asarray(chosen & selected), y, x), x.dtype)

    def _at(self, position: Any, name: str, size: int) -> Array:
        """Tell which tokens are chosen, (T,) or (R, T)."""
        if is_of_source(name):
            return _matches(position, np.arange(size), self.plan.prompt)
        return _matches(position, self.positions[..., -size:], self.plan.prompt)


# --- entries ---------------------------------------------------------------------------------------------------------


def _matches(selection: Any, places: Any, prompt: int = 0) -> Any:
    """Tell which places are selected."""
    if isinstance(selection, str):
        return places < prompt if selection == PROMPT else places >= prompt
    if isinstance(selection, slice):
        start, stop, step = selection.start or 0, selection.stop, selection.step or 1
        if start < 0 or (stop or 0) < 0 or step < 1:
            raise ConfigError(f"position is {selection}", hint="count from the beginning: the end is not known yet")
        found = (places >= start) & ((places - start) % step == 0)
        return found if stop is None else found & (places < stop)
    numbers = np.atleast_1d(np.asarray(selection))
    if numbers.dtype.kind not in "iu" or (numbers < 0).any():
        raise ConfigError(f"position is {selection!r}", hint='use "prompt", "new", or numbers from 0 on')
    return (places[..., None] == numbers).any(axis=-1)


def _spread(chosen: Any, count: int, axis: int) -> Any:
    """Give a choice along one axis, or along examples and that axis, all axes of a value."""
    shape = [1] * count
    shape[axis] = chosen.shape[-1]
    if chosen.ndim == 2:
        shape[0] = chosen.shape[0]
    return chosen.reshape(shape)


def _value(change: Change, inside: tuple[Any, ...], shape: list[int]) -> Array:
    """Return what is added at each feature, in the shape of the value of one token."""
    full = np.zeros(shape)
    entries = full[inside].shape
    value = np.asarray(change.value)
    try:
        full[inside] = np.broadcast_to(value, shape)[inside] if change.whole else np.broadcast_to(value, entries)
    except ValueError:
        raise ShapeError(
            f"the change of {change.name} gives {value.shape}, the entries of one token are {entries}",
            hint="give a number, or an array that broadcasts",
        ) from None
    return full


# --- directions ------------------------------------------------------------------------------------------------------


def steering_vector(model: TrainedModel, toward: Sequence[str], away: Sequence[str], name: str) -> Array:
    """Return the difference of a value's mean over two lists of texts, (D,): a direction to add while a model writes.

    Every text counts once, by the mean over its tokens (Turner et al. 2023, "Activation Addition").
    """
    means = []
    for side in (toward, away):
        found = activations(model, texts_of(side), [name])
        means.append(np.mean([found[name][found.examples == n].mean(axis=0) for n in range(len(side))], axis=0))
    return means[0] - means[1]
