"""Drawing pictures, alone or those of a report: in both themes, as other formats too, one after the other."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ..errors import ConfigError
from ..files import write_new
from ..settings import check_known
from .report import Picture, Section, Sketch, write_report
from .style import FORMATS, save
from .theme import THEMES, themed

Progress = Callable[[int, int, str], None]
"""Is told how many pictures are drawn, of how many, and the name of the next."""


def draw_sections(
    folder: str | Path,
    sections: Sequence[Section],
    *,
    theme: str | None = None,
    copies: str = "png",
    progress: Progress | None = None,
) -> list[Section]:
    """Draw every sketch of some sections into `folder`, and return the sections with pictures in their place.

    theme      light or dark; None: both, NAME.png and NAME-dark.png, and the page shows what its reader likes
    copies     a format, svg or pdf, to write beside the PNG files that a page shows
    """
    if copies not in FORMATS:
        raise ConfigError(f"figures are not written as {copies!r}", hint=f"choose from {', '.join(FORMATS)}")
    total = sum(isinstance(picture, Sketch) for picture in pictures_of(sections))
    done = 0

    def drawn(pictures: Sequence[Picture | Sketch]) -> list[Picture]:
        nonlocal done
        result = []
        for picture in pictures:
            if isinstance(picture, Sketch):
                if progress is not None:
                    progress(done, total, picture.name)
                picture, done = _drawn(Path(folder), picture, theme, copies), done + 1
            result.append(picture)
        return result

    def whole(part: Section) -> Section:
        folds = [fold._replace(pictures=drawn(fold.pictures)) for fold in part.folds]
        return part._replace(folds=folds)

    finished = [whole(section._replace(pictures=drawn(section.pictures))) for section in sections]
    if progress is not None:
        progress(total, total, "")
    return finished


def pictures_of(sections: Sequence[Section]) -> Iterator[Picture | Sketch]:
    """Yield every picture of some sections, those that are folded away as well."""
    for section in sections:
        yield from section.pictures
        for fold in section.folds:
            yield from fold.pictures


def files_of(sections: Sequence[Section]) -> list[str]:
    """Return the names of all files of the pictures of some sections that are drawn."""
    names = []
    for picture in pictures_of(sections):
        if isinstance(picture, Picture):
            dark = [] if picture.dark is None else [picture.dark]
            names += [str(name) for name in (picture.path, *dark, *picture.copies)]
    return names


def write_page(path: str | Path, title: str, sections: Sequence[Section], *, intro: str = "") -> Path:
    """Draw sections, write them as one page that holds its pictures, light and dark, and return where it is."""
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(folder, title, draw_sections(folder, sections), intro=intro, embed=True)
        return write_new(path, page.read_bytes())


def save_themes(draw: Callable[[], Figure], folder: str | Path, name: str, *, form: str = "png") -> list[Path]:
    """Save what `draw()` draws: NAME.png for light pages and NAME-dark.png for dark ones, or in another format."""
    check_known("there is no format", form, FORMATS)
    return [path for _, (path,) in _in_themes(draw, Path(folder), name, None, (form,))]


def _drawn(folder: Path, sketch: Sketch, theme: str | None, copies: str) -> Picture:
    forms = dict.fromkeys(("png", copies))
    drawn = _in_themes(sketch.draw, folder, sketch.name, theme, forms)
    (words, _), (first, *dark) = drawn[0], [paths[0].name for _, paths in drawn]
    others = [path.name for _, paths in drawn for path in paths[1:]]
    return Picture(first, sketch.caption, words, dark[0] if dark else None, others)


def _in_themes(
    draw: Callable[[], Figure], folder: Path, name: str, theme: str | None, forms: Iterable[str]
) -> list[tuple[str, list[Path]]]:
    """Draw a figure in one theme, or in each of them; return its description and its files in each."""
    drawn = []
    for number, one in enumerate(THEMES if theme is None else [theme]):
        with themed(one):
            figure = draw()
            file = name if number == 0 else f"{name}-{one}"
            paths = [save(figure, folder / f"{file}.{form}") for form in forms]
            drawn.append((str(figure.get_label()), paths))
    return drawn
