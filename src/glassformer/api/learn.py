"""`gf.train`: from a name to a trained model in one call, with something to watch meanwhile."""

import contextlib
import copy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ..core.errors import TrainingError
from ..core.reporting import granted
from ..engines.cluster.collective import processes
from ..progress import log
from ..progress.stopwatch import Show, Stopwatch
from ..runs.replay import Replay
from ..runs.replay import replay as open_replay
from ..runs.session import TrainingSession
from ..training import StepRecord
from ..training.interruption import Terminated, heeding_termination
from .arguments import check_order, takes_arguments
from .loop import Loop
from .trained_model import TrainedModel

Callback: TypeAlias = Callable[[StepRecord], object]


@takes_arguments
def train(
    data: Any, model: Any = None, *, callbacks: Sequence[Callback] = (), show: bool = True, **options: Any
) -> TrainedModel:
    """Train a model on data and return it, with its history: the parameters with the lowest validation loss.

    data         the name of a task (`gf.data.TASKS`), the path of a text, a folder or a table (CSV, TSV, JSONL), a
                 DataFrame, a list of dicts, arrays of token ids such as (tokens, targets), a Dataset, a Task, or a
                 generator that gives the batch of each step. Columns of a table are found by name, or named: text=,
                 label=, source=, target=
    model        the name of a preset (`gf.PRESETS`), a config, a model that `gf.build` made, or None for the one that
                 suits the task: its parameters are drawn from the seed. Or a `TrainedModel`, to go on from there
    steps        optimizer steps; None: as many as suit the task
    lora         with a trained model: freeze it, and train small matrices of this rank beside its own
    validation   arrays or a Dataset to hold out, where data is one; None: a tenth of it
    params       parameters to start from, instead of drawn ones
    out          a folder for the run, with checkpoints: `gf.resume` and the commands continue it
    record       with `out`: keep what it takes to return to any step with `gf.replay`
    execution    how the engine jax computes it
    callbacks    functions that are called with the record of each step
    show         a live panel in a terminal, a curve in a notebook, lines in a pipe; False: nothing
    settings     of the recipe (lr, batch, optimizer, freeze, …), of the model (width, layers, …) and of the task;
                 optimizer, schedule and loss are names, or a class, a function and a pair of functions of your own;
                 keep="last" returns the parameters after the last step instead of the best ones, keep="accurate" those
                 with the most right answers

    Ctrl-C ends the training, and what was reached so far is returned. SIGTERM ends the program; with `out`, what was
    reached is saved first.

    >>> import glassformer as gf
    >>> model = gf.train("counting", "tiny-decoder", steps=60, optimizer="adam", lr=0.01, show=False)
    >>> model.generate("1", temperature=0, max_new_tokens=5).text
    ' 2 3 4 5 6'
    >>> len(model.history.loss), bool(model.history.loss[-1] < model.history.loss[0])
    (60, True)
    """
    more = {**({"callbacks": callbacks} if callbacks else {}), **({} if show else {"show": show})}
    check_order("train", data, model, {**options, **more})
    loop = Loop(data, model, **options)
    for note in loop.session.opening if show else ():
        log(note)
    return _trained(loop, callbacks, show=show)


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    anyway: bool = False,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
    show: bool = True,
) -> TrainedModel:
    """Continue a run from its latest checkpoint to its end, bit for bit, and return the model that it keeps.

    folder            a run folder, which `gf.train(…, out=folder)` or `glassformer train` wrote
    steps             steps in all, to continue past the planned end
    anyway            continue although data, engine, versions or recipe have changed; the run remembers it
    trust             let the Python files that it was trained with run here
    callbacks, show   as of `gf.train`

    >>> import tempfile, glassformer as gf
    >>> folder = tempfile.mkdtemp() + "/majority"
    >>> for record in gf.Loop("majority", steps=40, save_every=10, out=folder):
    ...     if record.step == 25:
    ...         break
    >>> len(gf.resume(folder, show=False).history)
    40
    """
    with granted(trust or None):
        loop = Loop.resume(folder, steps=steps, anyway=anyway)
    for note in loop.session.notes if show else ():
        log(note)
    return _trained(loop, callbacks, show=show)


def replay(folder: str | Path) -> Replay:
    """Open a run that was trained with --record, to return to any of its steps.

    Runs that were not recorded, or whose data, engine or versions have changed, are refused.
    """
    return open_replay(folder, TrainedModel)


def _trained(loop: Loop, callbacks: Sequence[Callback], *, show: bool) -> TrainedModel:
    """Take all steps, and return the best model; what an interruption leaves is saved."""
    session, clock = loop.session, Stopwatch(loop.steps, loop.session.state.step)
    # Of several processes, SIGTERM is JAX's.
    with heeding_termination() if processes() == 1 else contextlib.nullcontext():
        try:
            with _shown(session, clock) if show else contextlib.nullcontext() as tell:
                for record in loop:
                    clock.add(record)
                    for call in (*callbacks, tell):
                        if call is not None:
                            call(record)
        except KeyboardInterrupt as error:
            session.save()
            if isinstance(error, Terminated):
                sys.exit(143)
            if show:
                log(f"interrupted after step {session.state.step:,}: this is the model as it is now")
            return copy.deepcopy(loop.now)  # whose arrays may be written to
        except TrainingError:
            session.save()
            raise
        return loop.best


def _shown(session: TrainingSession, clock: Stopwatch) -> contextlib.AbstractContextManager[Show]:
    from ..progress.display import display  # which loads Rich

    return display(session, clock)
