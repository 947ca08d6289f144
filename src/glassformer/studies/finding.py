"""What the rows of a study say: each setting over seeds, beside the one that all are compared with.

A setting is better or worse if no seed of one reaches any seed of the other.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..progress import plural
from .study import TAKEN, Rows, Study, Summary, summary, written


class Comparison(NamedTuple):
    """A setting beside the others.

    answer    the result that is compared
    group     settings that all have in common
    setting   the setting, and its value
    result    over seeds, averaged within each seed over all other settings
    lacking   the number of its runs that have no such result
    verdict   "whole" of the setting that the others are compared with; "better", "worse" or "no clear difference"
              of the others, and "unknown spread" where there is one seed
    """

    answer: str
    group: dict[str, Any]
    setting: dict[str, Any]
    result: Summary
    lacking: int
    verdict: str

    def __str__(self) -> str:
        [value] = self.setting.values()
        lacking = f" ({plural(self.lacking, 'run')} without)" if self.lacking else ""
        return f"{value if isinstance(value, str) else written(self.setting)} {over_seeds(self.result)}{lacking}"


def compared(study: Study, rows: Rows) -> list[list[Comparison]]:
    """Return the comparisons that a study makes: one list for each answer, group and setting, the whole first."""
    return [comparison for group in _groups(study, rows) for comparison in _comparisons(study, *group)]


def _groups(study: Study, rows: Rows) -> Iterator[tuple[dict[str, Any], Rows]]:
    """Yield the rows that are compared with each other, and what they have in common."""
    rows = rows if study.derived is None else study.derived(rows)
    for values in rows.mean(TAKEN[0], by=study.by):
        group = dict(zip(study.by, values, strict=True))
        yield group, rows.where(**group)


def _comparisons(study: Study, group: dict[str, Any], rows: Rows) -> Iterator[list[Comparison]]:
    for (answer, best), (name, whole) in itertools.product(study.answers.items(), study.whole.items()):
        results = {value: _result(rows.where(**{name: value}), answer) for value in rows.values(name)}
        if whole in results:
            yield [
                Comparison(answer, group, {name: value}, *results[value], verdict)
                for verdict, value in _verdicts(results, whole, best)
            ]


def _result(rows: Rows, answer: str) -> tuple[Summary, int]:
    """Return a result over seeds, and how many runs lack it."""
    seeds = [seed for seed in rows.mean(answer, by=TAKEN[0]).values() if seed.runs]
    return summary(seed.mean for seed in seeds), len(rows) - sum(seed.runs for seed in seeds)


def _verdicts(results: Mapping[Any, tuple[Summary, int]], whole: Any, best: str) -> Iterator[tuple[str, Any]]:
    """Yield each value with its verdict: the whole first, then the others from the best to the worst."""
    sign = -1 if best == "highest" else 1

    def ends(value: Any) -> tuple[float, float]:
        """Return the best and the worst of a setting as costs; a run without a result is the worst possible."""
        result, lacking = results[value]
        low, high = sorted((sign * result.low, sign * result.high)) if result.runs else (math.inf, math.inf)
        return low, math.inf if lacking else high

    (low, high), seeds = ends(whole), max(result.runs for result, _ in results.values())
    yield "whole", whole
    costs = {value: sign * result.mean if result.runs else math.inf for value, (result, _) in results.items()}
    others = [value for value in results if value != whole]
    for value in sorted(others, key=lambda value: costs[value]):
        its_low, its_high = ends(value)
        clear = "better" if its_high < low else "worse" if its_low > high else "no clear difference"
        yield clear if seeds > 1 else "unknown spread", value


def findings(study: Study, rows: Rows, settings: Sequence[str]) -> list[str]:
    """Return the finding of a study in sentences."""
    if study.finding is not None:
        sentences = list(study.finding(rows))
    else:
        sentences = [text for group in _groups(study, rows) for text in _sentences(study, *group, settings)]
    return [*sentences, *([study.caveat] if study.caveat else [])]


def _sentences(study: Study, group: dict[str, Any], rows: Rows, settings: Sequence[str]) -> list[str]:
    """Return how settings compare with the whole; without one, where each answer is lowest and highest."""
    if comparisons := list(_comparisons(study, group, rows)):
        return [_sentence(comparison) for comparison in comparisons]
    settings = [name for name in settings if name in rows.columns]
    names, points = list(study.answers) or numbers_of(rows, settings)[:1], varied(rows, settings)
    return [_extremes(rows, name, points, _within(group)) for name in names] or [f"{plural(len(rows), 'run')} done."]


def _within(group: dict[str, Any]) -> str:
    return f" with {written(group)}" if group else ""


def _sentence(comparison: Sequence[Comparison]) -> str:
    whole, *others = comparison
    seeds = _seeds(max(setting.result.runs for setting in comparison))
    where = f"{_within(whole.group)} is {over_seeds(whole.result)} at {written(whole.setting)} ({seeds})"
    parts = [f"{whole.answer}{where}"]
    for verdict in ("better", "worse", "no clear difference", "unknown spread"):
        if entries := [str(other) for other in others if other.verdict == verdict]:
            parts.append(f"{verdict}: {', '.join(entries)}")
    return f"{'; '.join(parts)}."


def _extremes(rows: Rows, name: str, points: Sequence[str], where: str) -> str:
    results = [(key, result) for key, result in rows.mean(name, by=tuple(points)).items() if result.runs]
    if not results:
        return f"No run{where} has a finite {name}."
    low, high = (pick(results, key=lambda pair: pair[1].mean) for pick in (min, max))

    def at(key: Any, result: Summary) -> str:
        point = written(dict(zip(points, key, strict=True)))
        return f"at {point} ({over_seeds(result)}; {_seeds(result.runs)})"

    if not points:
        return f"{name}{where} is {over_seeds(low[1])} ({_seeds(low[1].runs)})."
    return f"{name}{where} is lowest {at(*low)} and highest {at(*high)}."


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"mean of {count:,} seeds"


def numbers_of(rows: Rows, settings: Sequence[str]) -> list[str]:
    """Return the columns that hold measured numbers."""
    names = [name for name in rows.columns if name not in {*settings, *TAKEN, "seconds"}]
    return [name for name in names if all(isinstance(row[name], int | float) for row in rows)]


def varied(rows: Rows, settings: Sequence[str]) -> list[str]:
    """Return the settings that differ between points."""
    return [name for name in settings if name in rows.columns and len({json.dumps(row.get(name)) for row in rows}) > 1]


def over_seeds(found: Summary) -> str:
    """Write a number over seeds: its mean ± half of the range."""
    if not found.runs:
        return "–"
    spread = (found.high - found.low) / 2
    if not spread:
        return shortly(found.mean)
    digits = max(0, min(6, 1 - math.floor(math.log10(spread))))  # two of the spread
    return f"{found.mean:,.{digits}f} ± {spread:,.{digits}f}"


def shortly(value: float) -> str:
    """Write a number with four digits, and a whole one of up to seven in full."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:,.4g}"
