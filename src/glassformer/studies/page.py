"""The results of a study as one page in the explorer's style, and an index of all studies in a folder."""

import base64
import itertools
from html import escape
from pathlib import Path
from typing import Any

from ..core.errors import GlassformerError
from ..core.files import write_new
from ..progress import plural
from ..web.document import document
from .report import FILE, FORMS, StudyResult, figure_path, read_study

INDEX = "index.html"
WIDE, NARROW = "(min-width: 40.01rem)", "(max-width: 40rem)"


def write_pages(folder: Path) -> Path:
    """Write the page of the study in a folder, and where the folder is one of several, their index; return the page."""
    page = write_new(folder / INDEX, study_page(read_study(folder), folder).encode())
    if folder.parent.name == "studies":
        write_index(folder.parent)
    return page


def write_index(folder: Path) -> Path:
    """Write the index of all studies whose folders lie in this one."""
    return write_new(folder / INDEX, index_page(folder).encode())


def study_page(result: StudyResult, folder: Path) -> str:
    """Return the page of a study: the question, what was found, what was published, figures and the table."""
    first, *others = result.findings
    parts = [
        f'<p><a href="../{INDEX}">All studies</a></p>' if folder.parent.name == "studies" else "",
        f'<h1>{escape(result.question or result.name)}</h1><p class="finding">{escape(first)}</p>',
        *(f"<p>{escape(sentence)}</p>" for sentence in others),
        f"<p><strong>Published:</strong> {escape(result.published)}</p>" if result.published else "",
        *(_figure(folder, name, words) for name, words in result.figures.items()),
        "<h2>All points</h2><p>Numbers are means over seeds ± half of the range.</p>",
        _table(result.columns, result.table),
        f'<p class="quiet">{len(result.rows):,} runs of <code>glassformer study {escape(result.name)}'
        f"{' --quick' if result.quick else ''}</code>, engine {result.engine}{escape(_made_on(result.machines))}. "
        f'Every run is in <a href="{FILE}">{FILE}</a>.</p>',
    ]
    return document(result.name.replace("_", " "), "".join(parts), "study.css")


def _made_on(machines: list[dict[str, Any]]) -> str:
    """Name the machines that runs were made on, with the versions that each had."""

    def named(machine: dict[str, Any]) -> str:
        about = [str(machine[name]) for name in ("system", "processor") if name in machine]
        about += [plural(machine["cores"], "core")] if "cores" in machine else []
        others = [f"{name} {value}" for name, value in machine.items() if name not in ("system", "processor", "cores")]
        return ", ".join([*about, *others]) or "a machine that was not noted"

    return f", on {'; and on '.join(map(named, machines))}" if machines else ""


def index_page(folder: Path) -> str:
    """Return the page that leads to all studies in a folder, each with its question and its answer."""
    parts = ["<h1>Studies</h1><p>Experiments with seeds and error bars.</p>"]
    for path in sorted(folder.glob(f"*/{FILE}")):
        name = escape(path.parent.name)
        try:
            found = read_study(path.parent)
        except GlassformerError as error:
            parts.append(f"<h2>{name}</h2><p>{escape(error.fact)}</p>")
            continue
        link = f'<a href="{name}/{INDEX}">{escape(found.question or name)}</a>'
        parts.append(f"<h2>{link}</h2><p>{escape(found.findings[0])}</p>")
    return document("Studies", "".join(parts), "study.css")


def _figure(folder: Path, name: str, words: str) -> str:
    """Return a figure inside the page in the form that fits it; the words below it say what to see."""
    sources = []
    for form, dark in itertools.product(FORMS, (False, True)):
        if (path := figure_path(folder / "figures", name, dark, form)).exists():
            media = f"{NARROW if form else WIDE} and (prefers-color-scheme: {'dark' if dark else 'light'})"
            sources.append((f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}", media))
    title, _, says = words.partition(": ")
    choices = "".join(f'<source srcset="{data}" media="{media}">' for data, media in sources[1:])
    image = f'<picture>{choices}<img src="{sources[0][0]}" alt="{escape(words)}"></picture>'
    caption = f"<strong>{escape(title)}.</strong> {escape(says[:1].upper() + says[1:]).rstrip('.')}."
    return f'<figure id="{escape(name)}">{image}<figcaption>{caption}</figcaption></figure>'


def _table(columns: list[str], table: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table)
    return f'<table tabindex="0"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
