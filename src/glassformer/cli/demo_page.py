"""The page that the demonstration writes: results, what the models say, and a look inside each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from .. import interpret, plots
from ..interpret import Labels, Trace
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
    answers = plots.Table(("typed", "read as"), list(dates.items()))
    sections = [
        plots.Section("Results", tables=[plots.Table(COLUMNS, rows)]),
        plots.Section("Reading dates", "Typed in four languages, read as:", tables=[answers]),
        plots.Section("Writing", f"The language model continues a line of its own documentation:\n\n{said}"),
        _drawn(folder, sessions["majority"], "The classifier", _classifier, "11110222"),
        _drawn(folder, sessions["text"], "The language model", _language_model, "for x in "),
        _drawn(folder, sessions["dates"], "The translator", _translator, next(iter(dates))),
    ]
    return plots.write_report(folder, "Three Transformers in a glass case", sections, intro=INTRO)


Drawn = Iterator[tuple[str, Figure, str]]
"""Pictures with their names and captions."""


def _drawn(folder: Path, session: Session, heading: str, draw: Callable[..., Drawn], typed: str) -> plots.Section:
    """Draw what a model did with an example, and how it learned."""
    trained, labels = session.trained, task_labels(session.trained)
    seen = interpret.trace(trained.model, trained.params, trained.example(typed), labels=labels)
    drawn = [*draw(trained, seen, labels), ("loss", plots.loss_curve(session.run.metrics()), "How it learned.")]
    pictures = [
        plots.saved_picture(folder, f"{session.task.name}-{name}", figure, caption) for name, figure, caption in drawn
    ]
    return plots.Section(heading, EXAMPLES[session.task.name].format(typed), pictures)


def _classifier(trained: Trained, seen: Trace, labels: Labels) -> Drawn:
    bars = plots.prediction_bars(seen.probabilities, labels.classes or str, title="Which token is most frequent?")
    heads = plots.attention_heads(seen.attention["encoder"][0], seen.labels["encoder"], title="Who looks at whom")
    yield "prediction", bars, "How sure it is of each answer."
    yield "attention", heads, "Each row is a token, each column a token it looks at."
    table = interpret.position_table(trained.model, trained.params)
    if table is not None:
        yield "positions", plots.position_heat_map(table), "The encoding of each position."
        curve = plots.similarity_curve(interpret.similarity_by_distance(table))
        yield "similarity", curve, "The further apart, the less alike."


def _language_model(trained: Trained, seen: Trace, labels: Labels) -> Drawn:
    assert seen.probabilities is not None
    full, causal = interpret.full_and_causal(seen)
    names = seen.labels["decoder"]
    bars = plots.prediction_bars(seen.probabilities[-1], labels.tokens, title="What comes after 'for x in '?")
    heads = plots.attention_heads(seen.attention["decoder"][0], names, allowed=seen.allowed["decoder"], title="Layer 1")
    masks = plots.full_against_causal(full[0, 0], causal[0, 0], names)
    yield "prediction", bars, "The characters it expects next."
    yield "attention", heads, "No character sees those that come after it."
    yield "masks", masks, "The same scores without and with the causal mask."
    yield "layers", plots.layer_curves(interpret.layer_statistics(seen)), "What leaves each layer."


def _translator(trained: Trained, seen: Trace, labels: Labels) -> Drawn:
    statistics = interpret.head_statistics(seen, "cross")
    last, written, read = seen.attention["cross"][-1], seen.query_labels("cross"), seen.key_labels("cross")
    heads = plots.attention_heads(last, written, read, title="Where it looks")
    yield "cross", heads, "Rows: the date as it is written. Columns: what was typed."
    yield "specialization", plots.head_specialization(statistics), "1: a head that picks one place."
    yield "heads", plots.head_positions(statistics, read), "Which characters each head looks at most."
