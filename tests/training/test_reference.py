"""Reference results that train within seconds, with the recipes that the tasks bring along."""

import pytest

from glassformer.generation.answer import ask
from glassformer.runs.start import new_session


def trained(task, folder, *, seed=0, **settings):
    """Train a task to the end; return the session and its records."""
    session = new_session(task, folder, settings=settings, seed=seed)
    return session, list(session.steps())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1])
def test_majority_is_learned_from_1600_sequences(tmp_path, seed):
    session, _ = trained("majority", tmp_path / "run", seed=seed)
    assert (len(session.task.train), len(session.task.held_out)) == (1600, 400)
    assert session.test(session.run.load_params()).accuracy >= 0.99


def test_counting_is_learned_with_the_reference_settings(tmp_path):
    session, records = trained("counting", tmp_path / "run")
    recipe, config = session.run.recipe, session.run.config
    assert (recipe.optimizer, recipe.lr, recipe.steps, recipe.batch) == ("sgd", 0.05, 300, 1)
    assert (config.norm_position, config.activation) == ("post", "relu")
    assert 2.5 < records[0].loss < 3.6
    assert records[-1].loss < 0.05
    assert records[-1].evaluation.loss < 0.05
    numbers = ["1", *ask(session.trained, "1").split()]
    assert numbers[:6] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_counting_takes_adam_a_fraction_of_the_epochs(optimizer, tmp_path):
    _, records = trained("counting", tmp_path / "run", optimizer=optimizer, lr=0.01, steps=60, eval_every=60)
    assert 2.5 < records[0].loss < 3.6
    assert records[-1].evaluation.loss < 0.05
    assert records[-1].evaluation.accuracy == 1.0
