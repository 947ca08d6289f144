"""What a study found as one page in the explorer's look, and an index of all studies in a folder."""

import base64
from html import escape
from pathlib import Path

from ..errors import GlassformerError
from ..files import write_new
from ..studies import StudyResult, read_study
from ..studies.report import FILE
from .document import document

INDEX = "index.html"


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
    on = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    parts = [
        f'<p><a href="../{INDEX}">All studies</a></p>' if folder.parent.name == "studies" else "",
        f'<h1>{escape(result.question or result.name)}</h1><p class="finding">{escape(first)}</p>',
        *(f"<p>{escape(sentence)}</p>" for sentence in others),
        f"<p><strong>Published:</strong> {escape(result.published)}</p>" if result.published else "",
        *(_figure(folder, name, words) for name, words in result.figures.items()),
        "<h2>All points</h2><p>Numbers are means over seeds ± half of the range.</p>",
        _table(result.columns, result.table),
        f'<p class="quiet">{len(result.rows):,} runs of <code>glassformer study {escape(result.name)}'
        f"{' --quick' if result.quick else ''}</code>, engine {result.engine}; "
        f'{escape(on)}. Every run is in <a href="{FILE}">{FILE}</a>.</p>',
    ]
    return document(result.name.replace("_", " "), "".join(parts), "study.css")


def index_page(folder: Path) -> str:
    """Return the page that leads to all studies in a folder, each with its question and its answer."""
    rows = []
    for path in sorted(folder.glob(f"*/{FILE}")):
        try:
            found = read_study(path.parent)
        except GlassformerError as error:
            rows.append([escape(path.parent.name), escape(error.fact), ""])
            continue
        link = f'<a href="{escape(path.parent.name)}/{INDEX}">{escape(path.parent.name)}</a>'
        rows.append([link, escape(found.question), escape(found.findings[0])])
    body = "<h1>Studies</h1><p>Experiments with seeds and error bars, run on this machine.</p>"
    lines = "".join(f'<tr><td>{name}</td><td class="wide">{ask}</td><td>{say}</td></tr>' for name, ask, say in rows)
    head = "<tr><th>study</th><th>question</th><th>what was found</th></tr>"
    return document("Studies", f"{body}<table><thead>{head}</thead><tbody>{lines}</tbody></table>", "study.css")


def _figure(folder: Path, name: str, words: str) -> str:
    """Return a figure inside the page, for light and dark ones; the words below it say what to see."""
    light, dark = (_data(folder / "figures" / f"{name}{end}.svg") for end in ("", "-dark"))
    title, _, says = words.partition(": ")
    source = f'<source srcset="{dark}" media="(prefers-color-scheme: dark)">'
    image = f'<picture>{source}<img src="{light}" alt="{escape(words)}"></picture>'
    caption = f"<strong>{escape(title)}.</strong> {escape(says[:1].upper() + says[1:]).rstrip('.')}."
    return f'<figure id="{escape(name)}">{image}<figcaption>{caption}</figcaption></figure>'


def _data(path: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _table(columns: list[str], table: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table)
    return f'<table tabindex="0"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
