"""`glassformer demo`: the main job in about two minutes, on data that every Python carries."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from .. import interpret, plots
from ..errors import ConfigError, typed
from ..files import new_folder
from ..interpret import Labels, Trace
from ..interpret.reading import labels_of
from ..progress.display import waiting
from ..proofs import prove_all
from ..runs.session import Session
from ..runs.start import new_session
from ..trained_model import TrainedModel
from .options import PATH, json_option
from .output import log, print_json, print_table
from .train import run_session

LANGUAGES = ["en", "de", "fr", "es", "it", "nl", "pt", "sv"]
PARTS: dict[str, dict[str, Any]] = {
    "majority": {"steps": 400, "eval_every": 100},
    "text": {"steps": 500, "eval_every": 250, "width": 64, "layers": 2},
    "dates": {
        "locales": LANGUAGES, "train": 16000, "positions": "rotary", "encoder_layers": 1, "layers": 1,
        "steps": 700, "eval_every": 175, "lr": 4e-3, "warmup": 50,
    },
}  # fmt: skip
"""The tasks of the demonstration, one for each architecture, and what is changed to fit them into two minutes."""

DATES = ("3. März 2001", "14 juillet 1989", "December 25, 2024", "2 de mayo de 1999")
PROMPT = "The "

COLUMNS = ("task", ">parameters", ">steps", ">held-out loss", ">right", ">seconds")
INTRO = (
    "Three Transformers, one of each architecture, trained from scratch on this machine a moment ago with gradients "
    "derived by hand. Every picture shows arrays that the backward pass used. The command glassformer inspect RUN "
    "draws all there is to see of any run."
)
BEST = "All that is shown here is of each model's best checkpoint: the one with the lowest held-out loss."
EXAMPLES = {
    "majority": "Which of 8 tokens is most frequent? Here it reads 1 1 1 1 0 2 2 2.",
    "text": "What comes next? Here it reads the beginning of a loop.",
    "dates": "It reads {!r} and writes the date, character by character.",
}


@click.command()
@click.option("--out", type=PATH, metavar="DIR", help="Folder for the runs and the report.")
@json_option
def demo(out: Path | None, json: bool) -> None:
    """Train a classifier, a language model and a date translator, and write a report with pictures."""
    began = time.perf_counter()
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already", hint="choose another --out, or leave it out for a new folder")
    with waiting("proving every gradient on this machine", quiet=json):
        proofs = prove_all()
    exact = sum(row.ok for row in proofs)
    log(f"{exact} of {len(proofs)} gradients are exact.")
    folder = new_folder(Path("runs") / "demo") if out is None else out
    sessions: dict[str, Session] = {}
    results: list[dict[str, Any]] = []
    for name, settings in PARTS.items():
        session = sessions[name] = new_session(name, folder / name, settings=settings)
        log(f"{name}: {session.task.summary}")
        results.append(run_session(session, quiet=json))
    said = sessions["text"].best.ask(PROMPT, length=300)
    dates = {typed: sessions["dates"].best.ask(typed) for typed in DATES}
    with waiting("drawing", quiet=json):
        page = write_page(folder, sessions, [_row(line) for line in results], PROMPT + said, dates)
    summary = {
        "gradients": {"exact": exact, "of": len(proofs)},
        "runs": results,
        "text": PROMPT + said,
        "dates": dates,
        "report": str(page),
        "explore": f"glassformer explore {typed(folder / 'text')}",
        "seconds": round(time.perf_counter() - began, 1),
    }
    if json:
        print_json(summary)
    else:
        _print(summary)
    if exact < len(proofs):
        raise click.exceptions.Exit(1)


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    right = "" if line["accuracy"] is None else f"{line['accuracy']:.1%}"
    figures = (f"{line['parameters']:,}", f"{line['steps']:,}", f"{line['val_loss']:.3f}", right)
    return (line["task"], *figures, f"{line['seconds']:.0f}")


def _print(summary: dict[str, Any]) -> None:
    rows = [_row(line) for line in summary["runs"]]
    print_table(COLUMNS, rows, title="Trained from scratch, here")
    print(BEST)
    print(f"The language model continues {PROMPT!r}:")
    print(summary["text"])
    print_table(("typed", "read as"), summary["dates"].items())
    print(f"{summary['seconds']:.0f} s in all. Open {summary['report']}")
    print(f"To see one of them work, touch and change any number: {summary['explore']}")


# --- the page: results, what the models say, and a look inside each -------------------------------------------------


def write_page(
    folder: Path, sessions: Mapping[str, Session], rows: Sequence[Sequence[str]], said: str, dates: Mapping[str, str]
) -> Path:
    """Draw the three models and put everything on one page; return where it is."""
    answers = plots.Table(("typed", "read as"), list(dates.items()))
    sections = [
        plots.Section("Results", BEST, tables=[plots.Table(COLUMNS, rows)]),
        plots.Section("Reading dates", "Typed in four languages, read as:", tables=[answers]),
        plots.Section("Writing", f"The language model continues {PROMPT!r}:", samples=[said]),
        _drawn(folder, sessions["majority"], "The classifier", _classifier, "11110222"),
        _drawn(folder, sessions["text"], "The language model", _language_model, "for x in "),
        _drawn(folder, sessions["dates"], "The translator", _translator, next(iter(dates))),
    ]
    return plots.write_report(folder, "Three Transformers in a glass case", sections, intro=INTRO)


Drawn = Iterator[plots.Sketch]
"""Pictures that are still to be drawn, in both themes."""


def _drawn(folder: Path, session: Session, heading: str, draw: Callable[..., Drawn], typed: str) -> plots.Section:
    """Draw what a model did with an example, and how it learned."""
    trained = session.best
    labels = labels_of(trained)
    seen = interpret.trace(trained.model, trained.params, trained.batch(typed)._replace(targets=None), labels=labels)
    learned = plots.Sketch("loss", partial(plots.loss_curve, session.run.metrics()), "How it learned.")
    sketches = [
        sketch._replace(name=f"{session.task.name}-{sketch.name}") for sketch in (*draw(trained, seen, labels), learned)
    ]
    section = plots.Section(heading, EXAMPLES[session.task.name].format(typed), sketches)
    return plots.draw_sections(folder, [section])[0]


def _classifier(trained: TrainedModel, seen: Trace, labels: Labels) -> Drawn:
    question = "Which token is most frequent?"
    bars = partial(plots.prediction_bars, seen.probabilities, labels.classes or str, title=question)
    names = seen.labels["encoder"]
    heads = partial(plots.attention_heads, seen.attention["encoder"][0], names, title="Who looks at whom")
    yield plots.Sketch("prediction", bars, "How sure it is of each answer.")
    yield plots.Sketch("attention", heads, "Each row is a token, each column a token it looks at.")
    table = interpret.position_table(trained.model, trained.params)
    if table is not None:
        yield plots.Sketch("positions", partial(plots.position_heat_map, table), "The encoding of each position.")
        curve = partial(plots.similarity_curve, interpret.similarity_by_distance(table))
        yield plots.Sketch("similarity", curve, "The further apart, the less alike.")


def _language_model(trained: TrainedModel, seen: Trace, labels: Labels) -> Drawn:
    assert seen.probabilities is not None
    full, causal = interpret.full_and_causal(seen)
    names, allowed = seen.labels["decoder"], seen.allowed["decoder"]
    question = "What comes after 'for x in '?"
    bars = partial(plots.prediction_bars, seen.probabilities[-1], labels.tokens, title=question)
    heads = partial(plots.attention_heads, seen.attention["decoder"][0], names, allowed=allowed, title="Layer 1")
    masks = partial(plots.full_against_causal, full[0, 0], causal[0, 0], names)
    curves = partial(plots.layer_curves, interpret.layer_statistics(seen))
    yield plots.Sketch("prediction", bars, "The characters it expects next.")
    yield plots.Sketch("attention", heads, "No character sees those that come after it.")
    yield plots.Sketch("masks", masks, "The same scores without and with the causal mask.")
    yield plots.Sketch("layers", curves, "What leaves each layer.")


def _translator(trained: TrainedModel, seen: Trace, labels: Labels) -> Drawn:
    statistics = interpret.head_statistics(seen, "cross")
    last, written, read = seen.attention["cross"][-1], seen.query_labels("cross"), seen.key_labels("cross")
    heads = partial(plots.attention_heads, last, written, read, title="Where it looks")
    score, where = partial(plots.head_specialization, statistics), partial(plots.head_positions, statistics, read)
    yield plots.Sketch("cross", heads, "Rows: the date as it is written. Columns: what was typed.")
    yield plots.Sketch("specialization", score, "1: a head that picks one place.")
    yield plots.Sketch("heads", where, "Which characters each head looks at most.")
