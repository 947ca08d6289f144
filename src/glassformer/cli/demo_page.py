"""The page that the demonstration writes: results, what the models say, and a look inside each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ..interpret import (
    Labels,
    Trace,
    full_and_causal,
    head_statistics,
    layer_statistics,
    position_table,
    similarity_by_distance,
    trace,
)
from ..plots import (
    Section,
    Table,
    attention_heads,
    full_against_causal,
    head_positions,
    head_specialization,
    layer_curves,
    loss_curve,
    position_heat_map,
    prediction_bars,
    saved_picture,
    similarity_curve,
    write_report,
)
from ..runs.session import Session
from ..runs.trained import Trained
from .inspect import task_labels

COLUMNS = ("task", "parameters", "steps", "held-out loss", "right", "seconds")
INTRO = (
    "Three Transformers, one of each architecture, trained from scratch on this machine a moment ago with gradients "
    "derived by hand. Every picture shows arrays that the backward pass used. `glassformer inspect` draws all there is "
    "to see of any run."
)
EXAMPLES = {
    "majority": "Which of 8 tokens is most frequent? Here it reads 1 1 1 1 0 2 2 2.",
    "text": "What comes next? Here it reads the beginning of a loop.",
    "dates": "It reads {!r} and writes the date, character by character.",
}


def write_page(
    folder: Path, sessions: Mapping[str, Session], rows: Sequence[Sequence[str]], said: str, dates: Mapping[str, str]
) -> Path:
    """Draw the three models and put everything on one page; return where it is."""
    answers = list(dates.items())
    sections = [
        Section("Results", tables=[Table(COLUMNS, rows)]),
        Section("Reading dates", "Typed in four languages, read as:", tables=[Table(("typed", "read as"), answers)]),
        Section("Writing", f"The language model continues a line of its own documentation:\n\n{said}"),
        _drawn(folder, sessions["majority"], "The classifier", _classifier, "11110222"),
        _drawn(folder, sessions["text"], "The language model", _language_model, "for x in "),
        _drawn(folder, sessions["dates"], "The translator", _translator, next(iter(dates))),
    ]
    return write_report(folder, "Three Transformers in a glass case", sections, intro=INTRO)


Drawn = Iterator[tuple[str, Figure, str]]
"""Pictures with their names and captions."""


def _drawn(folder: Path, session: Session, heading: str, draw: Callable[..., Drawn], typed: str) -> Section:
    """Draw what a model did with an example, and how it learned."""
    trained, labels = session.trained, task_labels(session.trained)
    seen = trace(trained.model, trained.params, trained.example(typed), labels=labels)
    drawn = [*draw(trained, seen, labels), ("loss", loss_curve(session.run.metrics()), "How it learned.")]
    pictures = [
        saved_picture(folder, f"{session.task.name}-{name}", figure, caption) for name, figure, caption in drawn
    ]
    return Section(heading, EXAMPLES[session.task.name].format(typed), pictures)


def _classifier(trained: Trained, seen: Trace, labels: Labels) -> Drawn:
    bars = prediction_bars(seen.probabilities, labels.classes or str, title="Which token is most frequent?")
    heads = attention_heads(seen.attention["encoder"][0], seen.labels["encoder"], title="Who looks at whom")
    yield "prediction", bars, "How sure it is of each answer."
    yield "attention", heads, "Each row is a token, each column a token it looks at."
    table = position_table(trained.model, trained.params)
    if table is not None:
        yield "positions", position_heat_map(table), "The encoding of each position."
        yield "similarity", similarity_curve(similarity_by_distance(table)), "The further apart, the less alike."


def _language_model(trained: Trained, seen: Trace, labels: Labels) -> Drawn:
    assert seen.probabilities is not None
    full, causal = full_and_causal(seen)
    names = seen.labels["decoder"]
    bars = prediction_bars(seen.probabilities[-1], labels.tokens, title="What comes after 'for x in '?")
    heads = attention_heads(seen.attention["decoder"][0], names, allowed=seen.allowed["decoder"], title="Layer 1")
    masks = full_against_causal(full[0, 0], causal[0, 0], names)
    yield "prediction", bars, "The characters it expects next."
    yield "attention", heads, "No character sees those that come after it."
    yield "masks", masks, "The same scores without and with the causal mask."
    yield "layers", layer_curves(layer_statistics(seen)), "What leaves each layer."


def _translator(trained: Trained, seen: Trace, labels: Labels) -> Drawn:
    statistics = head_statistics(seen, "cross")
    last, written, read = seen.attention["cross"][-1], seen.query_labels("cross"), seen.key_labels("cross")
    heads = attention_heads(last, written, read, title="Where it looks")
    yield "cross", heads, "Rows: the date as it is written. Columns: what was typed."
    yield "specialization", head_specialization(statistics), "1: a head that picks one place."
    yield "heads", head_positions(statistics, read), "Which characters each head looks at most."
