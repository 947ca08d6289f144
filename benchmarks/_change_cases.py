"""Random changes and the texts that are written with them, for `changes.py`: everything follows from two numbers."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from _change_asked import Asked, functions
from _change_models import FAMILIES, LETTERS, Subject, subject_of
from glassformer.core.tree import flatten
from glassformer.interpret import changes as offered
from glassformer.interpret import watch
from glassformer.interpret.names import MIXED, axes_of, is_of_source

DECLARES = "per_position" in inspect.signature(offered.transform).parameters
"""Whether a function can be declared to look at each position alone."""
KINDS = {"zero": 9, "scale": 12, "add": 13, "put": 15, "mean": 8, "transform": 20, "freeze": 7, "take": 3}
KINDS |= {"resample": 1}
SPECIAL = {"parameter": 5, "batch": 0.5, "bad": 3.5, "whole": 1, "from the end": 0.5}
"""How often changes are of each kind, of 100 or so; of SPECIAL, the kind is drawn besides."""
MODES = {"greedy": 30, "sampled": 25, "batch": 25, "beams": 14, "stream": 6}
MOST_NEW = 4
ROUNDS = 2
"""So often each name is drawn before any is."""
BAD = ("name", "head", "feature", "example", "shape", "gradient", "NaN", "unreached")


@dataclass(frozen=True)
class Case:
    """What to write, with which changes.

    prompts   ids of each text, its start token among them
    sources   ids that an encoder reads for each
    new       tokens to write at most
    n, beams  how many texts of each prompt; 0: no search
    numbers   whether all probabilities are looked at, or the chosen tokens alone
    """

    number: int
    subject: Subject
    engine: str
    mode: str
    changes: list[Asked]
    prompts: list[np.ndarray]
    sources: list[np.ndarray] | None
    new: int
    seed: int
    n: int
    beams: int
    sampling: dict[str, Any]
    numbers: bool

    def __str__(self) -> str:
        way = f"{self.mode}{f' n={self.n}' if self.n > 1 else ''}{f' {self.beams} beams' if self.beams else ''}"
        return f"{self.subject.family}, {self.engine}, {way}: {', '.join(map(str, self.changes))}"


@lru_cache(maxsize=1)
def _owners(seed: int) -> dict[str, list[tuple[int, str]]]:
    """Return all names of values, whatever the number of their block, each with the models that have it."""
    found: dict[str, list[tuple[int, str]]] = {}
    for model in range(len(FAMILIES)):
        for name in subject_of(model, seed).names:
            found.setdefault(re.sub(r"\d+", "*", name), []).append((model, name))
    return found


def about(number: int, seed: int) -> tuple[int, str]:
    """Return the model of a case and the name of a value: all names there are, twice, and then any of any model."""
    rng = np.random.default_rng((seed, number, 0))
    owners = _owners(seed)
    turn, place = divmod(number, len(owners))
    if turn < ROUNDS:
        kind = np.random.default_rng((seed, turn)).permutation(list(owners))[place]
        own = owners[str(kind)]
        return own[int(rng.integers(len(own)))]
    subject = subject_of(model := int(rng.integers(len(FAMILIES))), seed)
    return model, str(rng.choice(subject.maps if subject.maps and rng.random() < 0.2 else subject.names))


def case(number: int, engines: dict[str, float], seed: int) -> Case:
    """Return one case, which is written by an engine that is drawn by how often each is to."""
    rng = np.random.default_rng((seed, number))
    model, name = about(number, seed)
    subject, engine = subject_of(model, seed), _weighted(rng, engines)
    mode = _weighted(rng, MODES)
    is_batch = mode == "batch"
    count = int(rng.integers(2, 4)) if is_batch else 1
    beams = int(rng.integers(2, 4)) if mode == "beams" or (is_batch and rng.random() < 0.15) else 0
    is_drawn = not beams and (mode == "sampled" or (is_batch and rng.random() < 0.3) or rng.random() < 0.1)
    sampling: dict[str, Any] = {} if beams else {"temperature": 0.0}
    if is_drawn:
        sampling = {"temperature": float(rng.choice([0.7, 1.0, 1.5]))}
        sampling |= {"top_k": 4} if rng.random() < 0.2 else {}
    n = 2 if mode in ("sampled", "beams") and rng.random() < 0.3 else 1
    new = int(rng.integers(2, MOST_NEW + 1))
    changes, new, count = _changes(rng, subject, name, new, count)
    prompts, sources = [], None
    for _ in range(count):
        if subject.has_source:
            prompts.append(np.array([1]))
        else:
            ids = rng.integers(0, len(LETTERS), int(rng.integers(1, 8 if rng.random() < 0.85 else 11)))
            prompts.append(np.concatenate([[1], ids]) if subject.trained.start_id is not None else ids)
    if subject.has_source:
        sources = [subject.ids(rng, int(rng.integers(2, 7)), of_source=True) for _ in range(count)]
    if any(one.fits for one in changes):
        prompts, sources = _of_length(prompts, 6), None if sources is None else _of_length(sources, 5)
    return Case(
        number, subject, engine, mode, changes, prompts, sources, new, int(rng.integers(100)), n, beams, sampling,
        bool(beams) or (mode != "stream" and rng.random() < 0.7),
    )  # fmt: skip


def _of_length(texts: list[np.ndarray], length: int) -> list[np.ndarray]:
    return [np.resize(ids, length) if len(ids) > 1 else ids for ids in texts]


def _weighted(rng: np.random.Generator, weights: dict[str, float]) -> str:
    shares = np.array([*weights.values()], float)
    return str(rng.choice([*weights], p=shares / shares.sum()))


def _changes(
    rng: np.random.Generator, subject: Subject, name: str, new: int, count: int
) -> tuple[list[Asked], int, int]:
    """Draw one change or two; return how many tokens and texts there are with them."""
    kind = _weighted(rng, {**KINDS, **SPECIAL})
    if kind == "bad":
        return [_bad(rng, subject, name)], new, count
    if kind in ("take", "resample"):
        source = [one for one in subject.names if subject.has_source and is_of_source(one)]
        if source and rng.random() < 0.6:
            name = str(rng.choice(source))
        elif rng.random() < 0.7:
            new = 1  # of the prompt alone: the values of another run fit
        return [_drawn(rng, subject, name, kind, 1)], new, 1
    if kind == "whole":
        value = subject.run[name]
        one = Asked("put", name, {}, np.array(value[:1]), fits=True)
        return [one], 1 if rng.random() < 0.3 else new, 1
    if kind in ("parameter", "batch", "from the end"):
        if kind == "parameter":
            name = str(rng.choice(subject.params))
            own = _weighted(rng, {word: KINDS[word] for word in ("zero", "scale", "add", "put", "transform")})
            return [_drawn(rng, subject, name, own, count)], new, count
        if kind == "batch":
            part = "source" if subject.has_source else "tokens"
            return [Asked("put", part, {"position": [0]}, 2)], new, count
        one = _drawn(rng, subject, name, "scale", count)
        axes = axes_of(name, subject.run[name].ndim)
        axis = "key" if "key" in axes and rng.random() < 0.5 else "position"
        return [replace(one, where={**one.where, axis: -1} if axis in axes else one.where)], new, count
    first = _drawn(rng, subject, name, kind, count)
    changes = [first]
    if kind == "freeze" or rng.random() < 0.12:
        other = name if rng.random() < 0.2 else str(rng.choice(subject.names))
        if kind == "freeze":  # something before it, that it keeps away
            before = subject.names[: subject.names.index(name)]
            other = str(rng.choice(before)) if before else other
        own = _weighted(rng, {word: KINDS[word] for word in ("zero", "scale", "add", "put", "mean", "transform")})
        changes.append(_drawn(rng, subject, other, own, count))
    return [changes[k] for k in rng.permutation(len(changes))], new, count


def _drawn(rng: np.random.Generator, subject: Subject, name: str, kind: str, count: int) -> Asked:
    """Draw where a value is changed, and to what."""
    exact = _value(subject, name)
    axes, shape = axes_of(name, exact.ndim), exact.shape
    where = _where(rng, name, axes, shape, subject.exact.config.heads, count)
    if kind in ("zero", "freeze"):
        return Asked(kind, name, where)
    if kind in ("take", "resample", "mean"):
        size = 6 if kind != "mean" else int(rng.integers(4, 8))
        rows = 1 if kind == "take" else 2
        ids = np.stack([subject.ids(rng, 1 if subject.has_source else size) for _ in range(rows)])
        source = None
        if subject.has_source:
            source = np.stack([subject.ids(rng, 5, of_source=True) for _ in range(rows)])
        run = watch(subject.exact.model, subject.exact.params, subject.batch(ids, source))
        where.pop("example", None)
        settings = {}
        if kind == "take" and rng.random() < 0.3:  # another value of the same shape
            settings = {"source": str(rng.choice([one for one in run if run[one].shape == run[name].shape]))}
        return Asked(kind, name, where, run, {}, settings, fits=kind != "mean")
    is_bool = exact.dtype == bool
    spread = 1.0 if is_bool else max(float(np.std(exact[np.isfinite(exact)])), 0.1)
    factor, shift = float(rng.normal(0, 1.2)), float(rng.normal(0, spread))
    if kind == "scale":
        return Asked(kind, name, where, float(rng.integers(0, 2)) if is_bool else factor)
    if kind == "transform":
        if name not in subject.run:  # a parameter
            axes = []
        found = functions(axes, factor, shift, is_bool=is_bool)
        chosen = found[int(rng.integers(len(found)))]
        declared = chosen.alone and "position" in axes and DECLARES and rng.random() < 0.6
        return Asked(kind, name, where, chosen, {}, {"per_position": True} if declared else {})
    if is_bool:
        return Asked("put", name, where, bool(rng.integers(0, 2)))
    value: Any = shift
    aligned: dict[str, int] = {}
    if rng.random() < 0.5:
        value, aligned = _array(rng, name, axes, shape, where, subject.exact.config.heads, spread)
    return Asked(kind, name, where, value, aligned)


def _value(subject: Subject, name: str) -> Any:
    """Return a value of the model's run, or a parameter."""
    return subject.run[name] if name in subject.run else flatten(subject.exact.params)[name]


def _where(
    rng: np.random.Generator, name: str, axes: list[str], shape: tuple[int, ...], heads: int, count: int
) -> dict[str, Any]:
    """Draw a selection of some of the axes."""
    found: dict[str, Any] = {}
    sizes = dict(zip(axes, shape, strict=True))
    for axis, size in sizes.items():
        if axis == "example":
            if size > 1 and rng.random() < (0.25 if count > 1 else 0.05):
                found[axis] = int(rng.integers(count)) if rng.random() < 0.7 else [0, count - 1][: min(count, 2)]
        elif axis in ("position", "key"):
            if rng.random() < (0.55 if axis == "position" else 0.35):
                found[axis] = _places(rng, may_be_named=axis == "position" and not is_of_source(name))
        elif size > 1 and rng.random() < 0.35:
            found[axis] = _numbers(rng, size)
    if name.endswith(MIXED) and "feature" not in found and rng.random() < 0.4:
        found["head"] = _numbers(rng, heads)
    return found


def _places(rng: np.random.Generator, *, may_be_named: bool) -> Any:
    """Draw positions that are counted from the beginning."""
    ways: list[Any] = [
        int(rng.integers(0, 3)), sorted(rng.choice(6, 3, replace=False).tolist()), slice(int(rng.integers(0, 4)), None),
        slice(0, int(rng.integers(1, 4))), slice(0, None, 2), [2, 0],
    ]  # fmt: skip
    if may_be_named:
        ways += ["prompt", "new", "prompt", "new"]
    return ways[int(rng.integers(len(ways)))]


def _numbers(rng: np.random.Generator, size: int) -> Any:
    """Draw some of the numbers of an axis whose size does not change."""
    some = rng.choice(size, max(1, size // 2), replace=False).tolist()
    ways: list[Any] = [int(rng.integers(size)), some, slice(0, max(1, size // 2)), slice(None, None, 2), -1]
    ways.append(np.isin(np.arange(size), some))
    return ways[int(rng.integers(len(ways)))]


def _array(
    rng: np.random.Generator, name: str, axes: list[str], shape: tuple[int, ...], where: dict[str, Any], heads: int,
    spread: float,
) -> tuple[Any, dict[str, int]]:  # fmt: skip
    """Draw an array that broadcasts to the entries, whatever the length of the text."""
    sizes, aligned = [], {}
    own = [(axis, size) for axis, size in zip(axes, shape, strict=True) if axis != "example"]
    for number, (axis, size) in enumerate(own):
        asked = where.get(axis)
        if axis in ("position", "key"):
            count = len(asked) if isinstance(asked, list) else 1
            if count > 1 and rng.random() < 0.7:
                aligned[axis] = number - len(own)
            else:
                count = 1
        elif axis == "feature" and "head" in where and name.endswith(MIXED):
            count = len(np.atleast_1d(np.arange(heads)[where["head"]])) * (size // heads)
        else:
            count = size if asked is None else np.size(np.arange(size)[asked])
            count = count if rng.random() < 0.8 else 1
        sizes.append(count)
    while sizes and sizes[0] == 1 and len(sizes) > 1 and rng.random() < 0.5:
        sizes = sizes[1:]
    return rng.normal(0, spread, sizes), {axis: at for axis, at in aligned.items() if -at <= len(sizes)}


def _bad(rng: np.random.Generator, subject: Subject, name: str) -> Asked:
    """Draw a change that must be refused, in a run as in writing."""
    wrong = str(rng.choice(BAD))
    with_heads = next((one for one in subject.names if one.endswith(MIXED)), None)
    if wrong == "head" and with_heads:
        return Asked("zero", with_heads, {"head": 7})
    if wrong == "feature":
        return Asked("zero", name, {"feature": 999})
    if wrong == "example":
        return Asked("zero", "logits", {"example": 9})
    if wrong == "shape":
        return Asked("put", "logits", {}, np.ones(5))
    if wrong == "gradient":
        return Asked("stop", name, {})
    if wrong == "unreached":
        return Asked("zero", "logits", {"position": 200})
    if wrong == "NaN":
        return Asked("add", "logits", {}, float("nan"))
    return Asked("zero", f"{name}s", {})
