"""The report of a study: rows and findings in `study.json`, a table over seeds, figures, and a text with all of it."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core import dispatch
from ..core.errors import DataError
from ..core.files import explained, write_new
from ..core.threads import cores
from ..progress import plural
from ..runs.provenance import processor, products, system, versions
from .catalog import find_study
from .finding import findings, numbers_of, over_seeds, shortly, varied
from .study import Figures, Rows, Study, plain

FILE = "study.json"
RESULTS = Path(__file__).parent / "results"
"""The runs of all studies in full: format, settings, engine, machines and rows."""
FORMAT = 1
REPORT, FIGURES = "report.md", "figures"


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    rows       one for each run
    findings   sentences, the first of which answers the question
    settings   the columns of the rows that are settings of a point
    columns    of the table, and `table` its cells: over seeds, the mean ± half of the range
    figures    the words that stand below each figure, by its name; empty where none were drawn
    machines   where its runs were made, with which versions
    folder     where its files are
    """

    name: str
    question: str
    published: str
    rows: Rows
    findings: list[str]
    settings: list[str]
    columns: list[str]
    table: list[list[str]]
    quick: bool = False
    engine: str = ""
    machines: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    folder: Path = field(default=Path(), compare=False)

    @classmethod
    def of(cls, study: Study, rows: Rows, settings: list[str] | None, **about: Any) -> "StudyResult":
        """Return what rows say; `settings` None: every row is a point of its own."""
        names = rows.columns if settings is None else settings
        said = findings(study, rows, names)
        columns = list(study.columns) or [*(varied(rows, names) or names), *numbers_of(rows, names)]
        table = table_of(rows, names, columns)
        return cls(study.name, study.question, study.published, rows, said, names, columns, table, **about)

    def write(self, folder: Path, study: Study | None) -> "StudyResult":
        """Write study.json, the report, and the figures of `study`; None draws none."""
        figures = {} if study is None else draw(study, self, folder / FIGURES)
        made = replace(self, figures=figures, folder=folder)
        kept = {**asdict(made), "rows": [plain_row(row) for row in made.rows]}
        kept.pop("folder")
        text = json.dumps({"format": FORMAT, **kept}, indent=1, allow_nan=False)
        write_new(folder / FILE, text.encode())
        write_new(folder / REPORT, markdown(made).encode())
        return made


def read_study(folder: str | Path) -> StudyResult:
    """Read what `run_study` wrote into a folder; the name of a study is its full run that comes with the package.

    >>> import glassformer as gf
    >>> gf.studies.read_study("superposition").question
    'How many features fit into two dimensions?'
    """
    path, shipped = Path(folder) / FILE, RESULTS / f"{folder}.json"
    if not path.exists() and shipped.exists():
        path = shipped
    with explained(path, DataError, hint="pass the folder of a study, or run it", done="read"):
        text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text)
        if content.pop("format") != FORMAT:
            raise DataError(f"{path} is of another version of Glassformer", hint="run the study again: runs are kept")
        rows = Rows({name: math.nan if value is None and name not in content["settings"] else value
                     for name, value in row.items()} for row in content.pop("rows"))  # fmt: skip
        if path == shipped:  # which holds what was measured; what it means is computed
            return StudyResult.of(find_study(path.stem), rows, **content)
        return StudyResult(rows=rows, folder=Path(folder), **content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is damaged: {error}", hint="run the study again: finished runs are kept") from error


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as JSON can write it: NaN becomes null."""
    return {name: plain(value, name) for name, value in row.items()}


def machine() -> dict[str, Any]:
    """Return in words where runs are made: numbers agree to the last bit only on the same kind of machine."""
    engine = dispatch.current().name
    found = {"system": system(), "processor": processor(engine), "cores": cores(), "BLAS": products(engine)}
    found |= versions(engine)
    return {name: value for name, value in found.items() if value is not None}


def table_of(rows: Rows, settings: Sequence[str], columns: Sequence[str]) -> list[list[str]]:
    """Return the cells of a table with one line for each point: settings as they are, numbers over seeds."""
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(json.dumps([row.get(name) for name in settings]), Rows()).append(row)
    return [[_cell(group, name, name in settings) for name in columns] for group in groups.values()]


def _cell(group: Rows, name: str, is_setting: bool) -> str:
    values = [row.get(name) for row in group]
    if is_setting or not all(isinstance(value, int | float) for value in values):
        first = values[0]
        return shortly(first) if isinstance(first, float) else "" if first is None else str(first)
    found, diverged = group.mean(name)[()], sum(bool(row.get("diverged")) for row in group)
    if found.runs == len(group) or not diverged:
        return over_seeds(found)
    return f"{over_seeds(found)} ({diverged} of {len(group)} diverged)" if found.runs else "diverged"


def plain_figures(rows: Rows, settings: Sequence[str], words: str) -> Figures:
    """Draw each number that was measured, the mean and the range over seeds, at every point."""
    from ..plots import style

    points = varied(rows, settings)
    names = varied(rows, numbers_of(rows, settings))[:4]
    if not names:
        return {}
    figure, axes = style.row(len(names), max(3.4, 4.0 / len(names)), 3.2)
    for ax, name in zip(axes, names, strict=True):
        found = rows.mean(name, by=tuple(points))
        labels = [", ".join(map(str, key)) for key in found]
        means = [one.mean for one in found.values()]
        bars = [[one.mean - one.low for one in found.values()], [one.high - one.mean for one in found.values()]]
        ax.errorbar(range(len(means)), means, yerr=bars, fmt="o", color=style.colors().blue, capsize=3)
        style.token_ticks(ax.xaxis, labels, room=2.6)
        ax.set_xlabel(", ".join(points))
        ax.set_ylabel(name)
    return {"results": style.titled(figure, "What was measured", words)}


def draw(study: Study, result: StudyResult, folder: Path) -> dict[str, str]:
    """Save the figures for light and dark pages; return the words of each."""
    from ..plots import style

    def drawn() -> Figures:
        if study.figures is not None:
            return study.figures(result.rows)
        return plain_figures(result.rows, result.settings, result.findings[0])

    words: dict[str, str] = {}
    for theme in style.THEMES:
        with style.themed(theme):
            for name, figure in style.styled(drawn)().items():
                style.save(figure, folder / f"{name}{'-dark' if theme == 'dark' else ''}.svg")
                words[name] = str(figure.get_label()) or result.findings[0]
    return words


# --- as a text -------------------------------------------------------------------------------------------------------


def markdown(result: StudyResult) -> str:
    """Return the report of a study: its question, what was found and published, figures, and the table."""
    command = f"glassformer study {result.name}{' --quick' if result.quick else ''}"
    machines = "; and on ".join(map(_machine_text, result.machines))
    rows = [result.columns, ["---"] * len(result.columns), *result.table]
    parts = [
        f"# {result.question or result.name}",
        *result.findings,
        f"Published: {result.published}" if result.published else "",
        *(f"![{words}]({FIGURES}/{name}.svg)" for name, words in result.figures.items()),
        "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows),
        "Numbers are means over seeds ± half of the range.",
        f"{len(result.rows):,} runs of `{command}`, engine {result.engine}{', on ' if machines else ''}{machines}. "
        f"Every run is in [{FILE}]({FILE}).",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _machine_text(machine: dict[str, Any]) -> str:
    about = [str(machine[name]) for name in ("system", "processor") if name in machine]
    about += [plural(machine["cores"], "core")] if "cores" in machine else []
    others = [f"{name} {value}" for name, value in machine.items() if name not in ("system", "processor", "cores")]
    return ", ".join([*about, *others]) or "a machine that was not noted"
