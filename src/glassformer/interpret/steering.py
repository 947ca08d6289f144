"""Changes while a model writes: the changes of `changes`, made to every token as it is read.

    model.generate("I went to the", changes=[add("blocks.12", 8 * v)])
    model.generate(prompt, changes=[zero("blocks.3.attention.output.x", head=1, position="new")])

A position is that of a token in its own sequence: a number, numbers, a slice such as slice(4, None), "prompt", "new",
or None for all. The model writes what it would write without a cache, if it ran on the whole text with these changes
for every token.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, LengthError
from ..core.settings import texts_of
from ..generation import texts
from ..generation.conversation import Conversation, reply, turns_of
from ..generation.texts import Generation, Prompt, Stream, encode_prompts, one_prompt, prompts_of
from ..weights.loaded_model import LoadedModel
from .activations import activations
from .changed_model import changed_model, from_start
from .changes import Change, listed
from .names import numbers_of
from .pieces import BY_TOKEN, matches, reads_source

SHARED = ("relative", "positions")
"""How values end that all texts of a batch share, where their tokens stand at the same places."""


def steered(model: LoadedModel, changes: Sequence[Change], prompt: int = 0) -> LoadedModel:
    """Return a model that makes changes while it writes; `prompt` is how many tokens it reads before it begins to."""
    built, params = changed_model(model.model, model.params, changes, prompt)
    return replace(model, built=built, params=params)


def generate(model: LoadedModel, prompt: Any, changes: Any, settings: Any) -> Any:
    """Answer prompts with changes; see `generation.generate`."""
    _check_slide(settings)
    prompts, _ = prompts_of(prompt)
    read, sources = encode_prompts(model, prompts, truncate=settings.get("truncate", False))
    lengths, changes = [len(ids) for ids in read], listed(changes)
    own = [_of_example(changes, n, len(prompts)) for n in range(len(prompts))]
    if len(prompts) > 1 and (own[0] is not changes or (len({*lengths}) > 1 and any(map(_is_of_one_text, changes)))):
        return [generate(model, one, some, settings) for one, some in zip(prompts, own, strict=True)]
    if not own[0]:
        return texts.generate(model, prompt, **settings)
    changed = steered(model, own[0], *lengths[:1])
    warned = _reaching(model, own[0], max(lengths, default=0), sources, settings)
    return warned(texts.generate(changed, prompt, **settings))


def stream(model: LoadedModel, prompt: Prompt, changes: Any, settings: Any) -> Stream:
    """Answer a prompt piece by piece, with changes; see `generation.stream`."""
    _check_slide(settings)
    (ids,), sources = encode_prompts(model, one_prompt(prompt), truncate=settings.get("truncate", False))
    changes = _of_example(listed(changes), 0, 1)
    changed = steered(model, changes, len(ids))
    warned = _reaching(model, changes, len(ids), sources, settings)
    found = texts.stream(changed, prompt, **settings)
    found.at_end = warned
    return found


def chat(model: LoadedModel, messages: Any, changes: Any, settings: Any) -> Any:
    """Answer the last message of a conversation, with changes; see `generation.reply`."""
    read = Conversation(model).encoded(turns_of(messages))
    changes = _of_example(listed(changes), 0, 1)
    changed = steered(model, changes, len(read))
    return _reaching(model, changes, len(read), None, settings)(reply(changed, messages, **settings))


def _is_of_one_text(change: Change) -> bool:
    """Return whether a change of several texts at once would not be that of each: their prompts differ in length."""
    return isinstance(change.where.position, str) or change.name.endswith(SHARED)


def _of_example(changes: list[Change], number: int, count: int) -> list[Change]:
    """Return the changes of one of several prompts; the very list if none of them says of which it is."""
    if all(change.where.example is None for change in changes):
        return changes
    found = []
    for change in changes:
        where = replace(change.where, example=None)
        if change.where.example is None:
            found.append(change)
        elif number in (numbers := list(numbers_of(change.name, "example", change.where.example, count))):
            own = np.asarray(change.value)
            of_each = own.ndim > 2 and len(own) == (count if change.whole else len(numbers)) > 1
            place = number if change.whole else numbers.index(number)
            found.append(replace(change, where=where, value=own[place : place + 1] if of_each else change.value))
    return found


def _reaching(
    model: LoadedModel, changes: list[Change], prompt: int, sources: list[Array] | None, settings: Any
) -> Callable[[Any], Any]:
    """Refuse changes at positions that no answer can reach; return what warns of those that answers did not reach."""
    source = max(map(len, sources or ()), default=0)

    def missed(read: int) -> Iterator[Change]:
        for change in changes:
            for axis in BY_TOKEN:
                asked = getattr(from_start(change, prompt).where, axis)
                places = np.arange(source if reads_source(change.name, axis) else read)
                if not matches(asked, places)[0].any():
                    yield change
                    break

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
    """Refuse sliding windows: they would renumber positions."""
    if settings.setdefault("slide", False):
        raise ConfigError("a model that makes changes cannot slide past its context", hint="leave slide out")


# --- directions ------------------------------------------------------------------------------------------------------


def steering_vector(model: LoadedModel, toward: Sequence[str], away: Sequence[str], name: str) -> Array:
    """Return the difference of a value's mean over two lists of texts, (D,): a direction to add while a model writes.

    Every text counts once, by the mean over its tokens (Turner et al. 2023, "Activation Addition").
    """
    means = []
    for side in (toward, away):
        found = activations(model, texts_of(side), [name])
        means.append(np.mean([found[name][found.examples == n].mean(axis=0) for n in range(len(side))], axis=0))
    return means[0] - means[1]
