"""The museum of bugs as one page in the explorer's look, which needs no server and no network."""

from html import escape

import numpy as np

from ..bugs import Curves, Exhibit, museum, right_curves
from ..bugs.training import EVERY, check_seconds
from .document import document

EFFECTS = {
    "silent": "Training looks right.",
    "worse": "Training ends worse, and looks like a poor choice of settings.",
    "stuck": "Training hardly moves.",
    "diverges": "Training diverges.",
    "too good": "The loss ends lower than it should.",
}
WIDTH, HEIGHT, LEFT, BOTTOM = 340, 170, 34, 26


def museum_page() -> str:
    """Return the page: every exhibit with its lines, its story, its curves and its check."""
    kinds = list(dict.fromkeys(exhibit.kind for exhibit in museum().values()))
    links = " · ".join(f'<a href="#{kind.replace(" ", "-")}">{kind}</a>' for kind in kinds)
    index = f'<nav aria-label="Rooms"><p>{links}</p></nav>'
    parts = ["<h1>The museum of bugs</h1>", _opening(), index]
    for kind in kinds:
        parts.append(f'<h2 id="{kind.replace(" ", "-")}">{kind.capitalize()}</h2>')
        parts += [_exhibit(exhibit) for exhibit in museum().values() if exhibit.kind == kind]
    return document("The museum of bugs", "".join(parts), "museum.css")


def effect_of(exhibit: Exhibit) -> str:
    """Return what training shows of a bug; nothing where training does not meet it."""
    curves = exhibit.curves()
    return "" if curves is None else curves.effect(right_curves(exhibit.setup))


def _opening() -> str:
    effects = [effect_of(exhibit) for exhibit in museum().values()]
    trained = [effect for effect in effects if effect]
    sourced = sum(bool(exhibit.sources) for exhibit in museum().values())
    slowest = max(check_seconds().values())
    return (
        f"<p>{len(effects)} mistakes in Transformers, {sourced} of them with the place where they were made. "
        f"Training meets {len(trained)} of them; "
        f"{trained.count('silent')} of these leave no trace in a loss curve of {EVERY * 30} steps, and "
        f"{trained.count('too good')} make it look better. "
        f"A check finds each of them in at most {slowest:.1f} seconds.</p>"
    )


def _exhibit(exhibit: Exhibit) -> str:
    effect, curves = effect_of(exhibit), exhibit.curves()
    figure = "" if curves is None else _figure(curves, right_curves(exhibit.setup), exhibit.title)
    says = EFFECTS[effect] if effect else "Training does not meet it."
    sources = "".join(
        f' <a href="{escape(link)}" rel="noopener">{escape("/".join(link.split("/")[3:5]))} {link.split("/")[-1]}</a>'
        for link in exhibit.sources
    )
    found = f"<p class='quiet'>Found in{sources}.</p>" if sources else ""
    seconds = check_seconds()[exhibit.name]
    return (
        f'<article id="{exhibit.name}" class="box"><div><h3>{escape(exhibit.title)}</h3><p>{escape(exhibit.story)}</p>'
        f'<pre tabindex="0">{_colored(exhibit.diff())}</pre><p><strong>{says}</strong> '
        f"The check “{escape(exhibit.check)}” finds it in {seconds:.2f} s.</p>{found}</div>{figure}</article>"
    )


def _colored(diff: str) -> str:
    classes = {"+": "bad", "-": "good"}
    lines = [(classes.get(line[0]) if not line.startswith("---") else "quiet", line) for line in diff.splitlines()]
    return "\n".join(f'<span class="{name}">{escape(line)}</span>' for name, line in lines)


def _figure(wrong: Curves, right: Curves, title: str) -> str:
    """Return the loss of every seed against the step, with and without the bug."""
    every = np.concatenate([wrong.loss, right.loss])
    low, high = 0.0, float(np.nanmax(every[np.isfinite(every)]))
    steps = np.arange(right.loss.shape[1]) + 0.5

    def line(row: np.ndarray, name: str) -> str:
        xs = LEFT + steps / len(row) * (WIDTH - LEFT - 6)
        ys = HEIGHT - BOTTOM - (row - low) / (high - low) * (HEIGHT - BOTTOM - 10)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True) if np.isfinite(y))
        return f'<polyline class="{name}" points="{points}"/>'

    lines = "".join([line(row, "right") for row in right.loss] + [line(row, "wrong") for row in wrong.loss])
    marks = "".join(
        f'<text x="{LEFT - 4}" y="{HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - 10) + 4:.1f}" '
        f'text-anchor="end">{value:g}</text>'
        for value in range(int(high) + 1)
    )
    axis = f'<path d="M{LEFT} 6V{HEIGHT - BOTTOM}H{WIDTH - 6}"/>'
    ends = f'<text x="{LEFT}" y="{HEIGHT - 10}">step 0</text>'
    ends += f'<text x="{WIDTH - 6}" y="{HEIGHT - 10}" text-anchor="end">{right.loss.shape[1] * EVERY}</text>'
    label = f"Loss by step, three seeds each: {escape(title)}, and without the bug"
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{axis}{marks}{ends}{lines}</svg>'
        '<figcaption class="quiet">loss, three seeds: <span class="bad">with the bug</span>, '
        '<span class="good">without it</span></figcaption></figure>'
    )
