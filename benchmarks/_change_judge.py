"""What a model writes with changes, and what whole runs say that it should: for `changes.py`.

The judge has no cache and no engine. For each token it runs the whole text so far, by itself, with `Run.changed`, and
chooses by the logits of the last position; greedy, by the same random numbers, or as the best of beams.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import glassformer as gf
from _change_cases import Case
from _change_models import LETTERS
from glassformer.core.errors import GlassformerError
from glassformer.core.tree import tree_map
from glassformer.interpret import watch

EXACT, SINGLE = 1e-8, 3e-4
"""How far logarithms of probabilities may lie apart in float64 and in float32, relative to 1 and to their size."""
JITTER, FACTOR = 2e-7, 30
"""Some changes let rounding grow: numbers may lie so many times as far apart as those of a judge whose parameters are
moved by such a share."""
VISIBLE = 10
"""A change has an effect that counts if it moves numbers by so many times what they may lie apart."""

Verdict = tuple[str, str]
"""same, without effect, different, not fired, refused, clear error, accepted or crashed; and why, or by how much."""


@dataclass
class Text:
    """What was written after one prompt.

    logs    of all tokens at each step, or of the chosen one (beams), or none
    plain   the same without changes
    score   of a search
    """

    ids: list[int] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    score: float = 0.0


class NotFiniteError(Exception):
    """The logits are not numbers."""


# --- writing ---------------------------------------------------------------------------------------------------------


def written(case: Case, chosen: list[Any]) -> list[list[Text]]:
    """Return what the model writes after each prompt."""
    model = case.subject.exact if case.engine == "numpy" else case.subject.trained
    settings: dict[str, Any] = {"max_new_tokens": case.new, "changes": chosen, **case.sampling}
    settings |= {"beams": case.beams} if case.beams else {"seed": case.seed}
    read = case.sources if case.sources is not None else case.prompts
    skip = model.start_id is not None and case.sources is None
    letters = ["".join(LETTERS[i] for i in ids[skip:]) for ids in read]
    with gf.use_engine(case.engine), np.errstate(all="ignore"):
        if case.mode == "stream":
            stream = model.stream(letters[0], **settings)
            for _ in stream:
                pass
            return [[Text(list(stream.generation.ids))]]
        if case.numbers:
            settings["log_probabilities"] = 0 if case.beams else len(LETTERS)
        found = model.generate(letters if case.mode == "batch" else letters[0], n=case.n, **settings)
    each = found if case.mode == "batch" else [found]
    return [[_text(one) for one in (own if case.n > 1 else [own])] for own in each]


def _text(answer: Any) -> Text:
    if answer.top is None:
        return Text(list(answer.ids), list(answer.log_probabilities or ()), score=answer.score or 0.0)
    logs = []
    for step in answer.top:
        row = np.full(len(LETTERS), -np.inf)
        for token, log in step:
            row[token] = log
        logs.append(row)
    return Text(list(answer.ids), logs)


# --- the judge -------------------------------------------------------------------------------------------------------


class Judge:
    """Writes by whole runs.

    left_out   numbers of changes that it does not make
    jitter     by which share its parameters are moved
    """

    def __init__(self, case: Case, left_out: tuple[int, ...] = (), jitter: float = 0.0) -> None:
        self.case, self.left_out = case, left_out
        self.tolerance = EXACT if case.engine == "numpy" else SINGLE
        self.params = case.subject.exact.params
        if jitter:
            rng = np.random.default_rng(0)
            self.params = tree_map(lambda x: x * (1 + jitter * rng.standard_normal(x.shape)), self.params)
        self.model = gf.build(case.subject.exact.config)
        self.made: set[int] = set()
        self.runs: dict[Any, Any] = {}

    def texts(self, hints: list[list[Text]] | None = None) -> list[list[Text]]:
        """Return what should be written after each prompt; where two tokens are as good, that of the hints."""
        found = []
        for number in range(len(self.case.prompts)):
            if self.case.beams:
                found.append(self._searched(number))
                continue
            each = []
            for sample in range(self.case.n):
                hint = None if hints is None else hints[number][sample].ids
                each.append(self._drawn(number, sample, hint))
            found.append(each)
        return found

    def logs(self, number: int, ids: list[int]) -> tuple[Any, Any]:
        """Return the logarithms of the probabilities of what follows these ids, with the changes and without."""
        key = number, tuple(ids)
        if key in self.runs:
            return self.runs[key]
        case = self.case
        prompt = case.prompts[number]
        text = np.concatenate([prompt, np.array(ids, dtype=np.int64)])
        source = None if case.sources is None else case.sources[number]
        with np.errstate(all="ignore"):
            plain = watch(self.model, self.params, case.subject.batch(text, source))
            changes = []
            for place, asked in enumerate(case.changes):
                change = None if place in self.left_out else asked.of_text(plain, number, len(prompt))
                if change is not None:
                    self.made.add(place)
                    changes.append(change)
            run = plain.changed(*changes) if changes else plain
        self.runs[key] = _log_softmax(run.logits[0, -1]), _log_softmax(plain.logits[0, -1])
        return self.runs[key]

    def _limit(self, number: int) -> int:
        return min(self.case.new, self.model.config.context + 1 - len(self.case.prompts[number]))

    def _drawn(self, number: int, sample: int, hint: list[int] | None) -> Text:
        """Write one token after the other."""
        rng = np.random.default_rng((self.case.seed, sample))
        found = Text()
        for step in range(self._limit(number)):
            logs, plain = self.logs(number, found.ids)
            wanted = None if hint is None or step >= len(hint) else hint[step]
            found.ids.append(self._chosen(logs, rng.random() if self.case.sampling["temperature"] else None, wanted))
            found.logs.append(logs)
            found.plain.append(plain)
        return found

    def _chosen(self, logs: Any, uniform: float | None, wanted: int | None) -> int:
        """Return the likeliest token, or the one at which a number from 0 to 1 falls; the wanted one if it is as good.

        A number so near to the border between two tokens that rounding decides leaves both as good.
        """
        near = 2 * self.tolerance * (1 + float(np.abs(logs.max())))
        if uniform is None:
            best = int(np.argmax(logs))
            return wanted if wanted is not None and logs[best] - logs[wanted] <= near else best
        scaled = logs / self.case.sampling["temperature"]
        top = self.case.sampling.get("top_k", len(logs))
        kept = np.sort(np.argsort(-scaled, kind="stable")[:top])
        shares = np.exp(scaled[kept] - scaled[kept].max())
        ends = np.cumsum(shares) / shares.sum()
        if wanted is not None and wanted in kept:
            place = int(np.searchsorted(kept, wanted))
            if (ends[place - 1] if place else 0.0) - near <= uniform <= ends[place] + near:
                return wanted
        return int(kept[min(int(np.searchsorted(ends, uniform, side="right")), len(kept) - 1)])

    def _searched(self, number: int) -> list[Text]:
        """Keep the best few beginnings at every step; nothing ends before the last one."""
        live = [Text()]
        for _ in range(self._limit(number)):
            longer = []
            for beam in live:
                logs, plain = self.logs(number, beam.ids)
                for token, log in enumerate(logs):
                    longer.append(
                        Text([*beam.ids, token], [*beam.logs, log], [*beam.plain, plain[token]], beam.score + log)
                    )
            live = sorted(longer, key=lambda beam: -beam.score)[: self.case.beams]
        for beam in live:
            beam.score /= len(beam.ids)
        return live[: self.case.n]

    def scored(self, number: int, ids: list[int]) -> Text:
        """Return the beam that holds these ids."""
        found = Text(list(ids))
        for step, token in enumerate(ids):
            logs, plain = self.logs(number, list(ids[:step]))
            found.logs.append(logs[token])
            found.plain.append(plain[token])
        found.score = sum(found.logs) / len(found.ids)
        return found


def _log_softmax(x: Any) -> Any:
    x = np.asarray(x, np.float64)
    if not np.isfinite(x.max()) or np.isnan(x).any():
        raise NotFiniteError("the logits are not finite")
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


# --- the verdict -----------------------------------------------------------------------------------------------------


def verdict(case: Case) -> Verdict:
    """Return what came of a case."""
    judge = Judge(case)
    try:
        found: Any = written(case, [asked.change() for asked in case.changes])
    except GlassformerError as error:
        found = error
    except Exception as error:  # that is no answer
        return "crashed", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    try:
        for asked in case.changes:
            asked.change()
        wanted = judge.texts(None if isinstance(found, Exception) else found)
    except Exception as error:
        if isinstance(found, Exception):
            return "clear error", f"{reason(found, case)} | in a run: {reason(error, case)}"
        return "accepted", f"a run refuses it: {reason(error, case)}"
    never = [str(asked) for place, asked in enumerate(case.changes) if place not in judge.made]
    if isinstance(found, Exception):
        return "clear error" if never else "refused", reason(found, case)
    if never:
        return "not fired", f"no token is at the position of {never[0]}, and nothing was said"
    off = _apart(case, found, wanted, judge)
    if off <= 1 or off <= _rounding(case, found, wanted, judge):
        effect = max(_distance(one.plain, one.logs) for own in wanted for one in own) / judge.tolerance
        return "same" if effect > VISIBLE else "without effect", ""
    for left_out in [*((place,) for place in range(len(case.changes))), tuple(range(len(case.changes)))]:
        other = Judge(case, left_out)
        try:
            if _apart(case, found, other.texts(found), other) <= 1:
                gone = ", ".join(str(case.changes[place]) for place in left_out)
                return "not fired", f"written as without {gone}"
        except Exception:
            continue
    return "different", "other tokens" if off == np.inf else f"off by {off * judge.tolerance:.2g}"


def _rounding(case: Case, found: list[list[Text]], wanted: list[list[Text]], judge: Judge) -> float:
    """Return how far apart numbers may lie, in units of the tolerance, where a change lets rounding grow."""
    if case.engine == "numpy":
        return 0.0
    try:
        moved = Judge(case, jitter=JITTER).texts(found)
    except Exception:
        return np.inf
    return FACTOR * _apart(case, moved, wanted, judge)


def _apart(case: Case, found: list[list[Text]], wanted: list[list[Text]], judge: Judge) -> float:
    """Return how far texts lie apart, in units of the tolerance; infinity if tokens are others."""
    most = 0.0
    for number, (have, want) in enumerate(zip(found, wanted, strict=True)):
        for one, other in zip(have, want, strict=True):
            if case.beams and one.ids != other.ids:  # as good, where rounding decides
                own = judge.scored(number, one.ids)
                most = max(most, _distance([own.score], [other.score]) / judge.tolerance / 5)
                other = own
            if one.ids != other.ids:
                return np.inf
            if case.beams:
                most = max(most, _distance([one.score], [other.score]) / judge.tolerance)
            if one.logs:
                most = max(most, _distance(one.logs, other.logs) / judge.tolerance)
    return most


def _distance(have: list[Any], want: list[Any]) -> float:
    """Return how far numbers lie apart, relative to 1 and to their size."""
    have, want = np.asarray(have, np.float64), np.asarray(want, np.float64)
    if have.shape != want.shape:
        return np.inf
    off = np.abs(have - want) / (1 + np.abs(want))
    return float(np.max(np.where(have == want, 0.0, off), initial=0.0))


def reason(error: Exception, case: Case) -> str:
    """Return why something was refused, in the same words for all values and numbers."""
    text = str(error).partition("\n")[0]
    for asked in sorted(case.changes, key=lambda one: -len(one.name)):
        text = text.replace(asked.name, "NAME").replace(repr(asked.kind), "KIND")
    text = re.sub(r"\b(?:encoder|decoder|blocks|embedding|head|final_norm)[.\w]*\.\w+", "NAME", text)
    return re.sub(r"\d[\d,]*", "N", f"{type(error).__name__}: {text}")


def explained(case: Case) -> list[str]:
    """Return a case in lines: what was written, what should be, and how far both lie apart at each token."""
    lines = [f"model: {case.subject.exact.config}", f"case {case.number}: {case}"]
    lines += [f"prompt {number}: {ids.tolist()}" for number, ids in enumerate(case.prompts)]
    lines += [f"source {number}: {ids.tolist()}" for number, ids in enumerate(case.sources or ())]
    lines.append(f"{case.new} new tokens, seed {case.seed}, {case.sampling}")
    found: Any = None
    try:
        found = written(case, [asked.change() for asked in case.changes])
    except Exception:
        lines += ["while writing:", traceback.format_exc()]
    try:
        judge = Judge(case)
        wanted = judge.texts(found)
    except Exception:
        return [*lines, "in runs:", traceback.format_exc()]
    for number, own in enumerate(wanted):
        for sample, text in enumerate(own):
            which = f"text {number}, {sample}"
            effect = [_distance([log], [plain]) for log, plain in zip(text.logs, text.plain, strict=True)]
            lines.append(f"{which}: runs give {text.ids}; the changes move them by {_listed(effect)}")
            if found is not None:
                have = found[number][sample]
                lines.append(f"{which}: written {have.ids}")
                if have.logs and have.ids == text.ids:
                    off = [_distance([one], [other]) for one, other in zip(have.logs, text.logs, strict=True)]
                    lines.append(f"{which}: off by {_listed(off)} (within {judge.tolerance:g})")
    return lines


def _listed(numbers: list[float]) -> str:
    return ", ".join(f"{number:.1e}" for number in numbers)
