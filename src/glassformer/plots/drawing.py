"""Drawing the pictures of a report: in both themes, as other formats too, one after the other."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import ConfigError
from .report import Picture, Section, Sketch
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
    themes = tuple(THEMES) if theme is None else (theme,)
    total = sum(isinstance(picture, Sketch) for picture in pictures_of(sections))
    done = 0

    def drawn(pictures: Sequence[Picture | Sketch]) -> list[Picture]:
        nonlocal done
        result = []
        for picture in pictures:
            if isinstance(picture, Sketch):
                if progress is not None:
                    progress(done, total, picture.name)
                picture, done = _drawn(Path(folder), picture, themes, copies), done + 1
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


def _drawn(folder: Path, sketch: Sketch, themes: Sequence[str], copies: str) -> Picture:
    paths: list[str] = []
    others: list[str] = []
    words = ""
    for theme in themes:
        name = sketch.name if theme == themes[0] else f"{sketch.name}-{theme}"
        with themed(theme):
            figure = sketch.draw()
            words = str(figure.get_label())
            paths.append(save(figure, folder / f"{name}.png").name)
            if copies != "png":
                others.append(save(figure, folder / f"{name}.{copies}").name)
    dark = paths[1] if len(paths) > 1 else None
    return Picture(paths[0], sketch.caption, words, dark, others)
