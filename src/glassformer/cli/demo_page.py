"""The page that the demonstration writes: results, what the models say, and a look inside each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..interpret import (
    full_and_causal,
    head_statistics,
    layer_statistics,
    position_table,
    similarity_by_distance,
    trace,
)
from ..plots import (
    Picture,
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
    save,
    similarity_curve,
    write_report,
)
from ..training.session import Session
from .inspect import task_labels

COLUMNS = ("task", "parameters", "steps", "held-out loss", "right", "seconds")
INTRO = (
    "Three Transformers, one of each architecture, trained from scratch on this machine a moment ago with gradients "
    "derived by hand. Every picture shows arrays that the backward pass used. `glassformer inspect` draws all there is "
    "to see of any run."
)


def write_page(
    folder: Path, sessions: Mapping[str, Session], rows: Sequence[Sequence[str]], said: str, dates: Mapping[str, str]
) -> Path:
    """Draw the three models and put everything on one page; return where it is."""
    sections = [
        Section("Results", tables=[Table(COLUMNS, rows)]),
        Section(
            "Reading dates",
            "Typed in four languages, read as:",
            tables=[Table(("typed", "read as"), list(dates.items()))],
        ),
        Section("Writing", f"The language model continues a line of its own documentation:\n\n{said}"),
        _classifier(folder, sessions["majority"]),
        _language_model(folder, sessions["text"]),
        _translator(folder, sessions["dates"], next(iter(dates))),
    ]
    return write_report(folder, "Three Transformers in a glass case", sections, intro=INTRO)


def _classifier(folder: Path, session: Session) -> Section:
    trained = session.trained
    seen = trace(trained.model, trained.params, trained.example("11110222"), labels=task_labels(trained))
    table = position_table(trained.model, trained.params)
    name = "majority"
    bars = prediction_bars(
        seen.probabilities, task_labels(trained).classes or str, title="Which token is most frequent?"
    )
    heads = attention_heads(seen.attention["encoder"][0], seen.labels["encoder"], title="Who looks at whom")
    pictures = [
        _picture(folder, name, "prediction", bars, "How sure it is of each answer."),
        _picture(folder, name, "attention", heads, "Each row is a token, each column a token it looks at."),
        _picture(folder, name, "loss", loss_curve(session.run.metrics()), "How it learned."),
    ]
    if table is not None:
        curve = similarity_curve(similarity_by_distance(table))
        pictures += [
            _picture(folder, name, "positions", position_heat_map(table), "The encoding of each position."),
            _picture(folder, name, "similarity", curve, "The further apart, the less alike."),
        ]
    return Section("The classifier", "Which of 8 tokens is most frequent? Here it reads 1 1 1 1 0 2 2 2.", pictures)


def _language_model(folder: Path, session: Session) -> Section:
    trained = session.trained
    seen = trace(trained.model, trained.params, trained.example("for x in "), labels=task_labels(trained))
    assert seen.probabilities is not None
    full, causal = full_and_causal(seen)
    labels, name = seen.labels["decoder"], "text"
    bars = prediction_bars(seen.probabilities[-1], task_labels(trained).tokens, title="What comes after 'for x in '?")
    heads = attention_heads(seen.attention["decoder"][0], labels, allowed=seen.allowed["decoder"], title="Layer 1")
    masks = full_against_causal(full[0, 0], causal[0, 0], labels)
    curves = layer_curves(layer_statistics(seen))
    pictures = [
        _picture(folder, name, "prediction", bars, "The characters it expects next."),
        _picture(folder, name, "attention", heads, "No character sees those that come after it."),
        _picture(folder, name, "masks", masks, "The same scores without and with the causal mask."),
        _picture(folder, name, "layers", curves, "What leaves each layer."),
        _picture(folder, name, "loss", loss_curve(session.run.metrics()), "How it learned."),
    ]
    return Section("The language model", "What comes next? Here it reads the beginning of a loop.", pictures)


def _translator(folder: Path, session: Session, typed: str) -> Section:
    trained = session.trained
    seen = trace(trained.model, trained.params, trained.example(typed), labels=task_labels(trained))
    statistics = head_statistics(seen, "cross")
    last = seen.attention["cross"][-1]
    heads = attention_heads(last, seen.query_labels("cross"), seen.key_labels("cross"), title="Where it looks")
    looks = head_positions(statistics, seen.key_labels("cross"))
    name = "dates"
    pictures = [
        _picture(folder, name, "cross", heads, "Rows: the date as it is written. Columns: what was typed."),
        _picture(folder, name, "specialization", head_specialization(statistics), "1: a head that picks one place."),
        _picture(folder, name, "heads", looks, "Which characters each head looks at most."),
        _picture(folder, name, "loss", loss_curve(session.run.metrics()), "How it learned."),
    ]
    return Section("The translator", f"It reads {typed!r} and writes the date, character by character.", pictures)


def _picture(folder: Path, task: str, name: str, figure: Any, caption: str) -> Picture:
    path = save(figure, folder / f"{task}-{name}.png")
    return Picture(path.name, caption, str(figure.get_label()))
