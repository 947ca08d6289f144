"""Objects that people copy, pickle and hand to other processes; every public name shows an example."""

import copy
import doctest
import inspect
import pickle

import numpy as np
import pytest

import glassformer as gf
from glassformer.interpret import Cards, Logit, gradients, lens, zero
from glassformer.training import History


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.fixture(scope="module")
def model():
    return gf.train("counting", steps=2, show=False)


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy, copy.copy])
def test_a_run_is_the_same_after_copying(copied, model):
    run = model.watch("1 2 3").changed(zero("blocks.0.attention.output.x", head=1))
    again = copied(run)
    assert all(np.array_equal(again[name], run[name]) for name in run)
    assert (again.loss, again.tokens, len(again.changes)) == (run.loss, run.tokens, 1)
    assert again.plain.loss == run.plain.loss


def test_what_holds_a_run_can_be_pickled(model):
    run = model.watch("1 2 3")
    found = gradients(run, Logit("4"))
    assert np.array_equal(pickled(found)["blocks.0"], found["blocks.0"])
    assert np.array_equal(pickled(lens(run)).logits, lens(run).logits)
    assert pickled(Cards(run)).card("blocks.0", (0, 1, 2)).value == run["blocks.0"][0, 1, 2]


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
def test_a_loop_cannot_be_copied(copied):
    with pytest.raises(gf.GlassformerError, match=r"loop\.now"):
        copied(gf.Loop("counting", steps=2))


def test_tasks_are_pickled_with_their_arrays_or_built_again_or_missed_in_words(model):
    with pytest.raises(gf.GlassformerError, match="build_task"):
        pickle.dumps(model.task)
    assert copy.deepcopy(model.task) is model.task
    tokens = np.random.default_rng(0).integers(0, 5, (40, 6))
    model = gf.train((tokens, tokens[:, 0] % 2), steps=2, show=False)
    assert pickled(model).evaluate() == model.evaluate()
    assert pickled(model).classify("1 2 3").label == model.classify("1 2 3").label
    batches = iter([gf.Batch(np.ones((4, 3), int), np.ones((4, 3), int))] * 3)
    model = pickled(gf.train(batches, gf.build("tiny-decoder"), steps=2, validation=np.ones((4, 3), int), show=False))
    with pytest.raises(gf.GlassformerError, match="a pickled model keeps"):
        model.evaluate()


def test_a_model_is_measured_by_the_loss_that_it_was_trained_with(monkeypatch):
    def squares(logits, targets):
        return np.mean(logits**2, dtype=np.float32), logits

    def squares_backward(dloss, logits):
        return dloss * 2 * logits / logits.size

    model = gf.train("majority", steps=2, loss=(squares, squares_backward), show=False)
    assert model.evaluate().loss == pytest.approx(model.history.metrics[-1]["val_loss"])


def test_an_optimizer_that_is_made_already_is_refused_by_name():
    with pytest.raises(gf.GlassformerError, match=r"(?s)AdamW\(.*pass AdamW itself, and its settings"):
        gf.train("counting", optimizer=gf.training.AdamW(), show=False)


pytestmark = pytest.mark.usefixtures("numpy_engine")

FRONT_DOOR = (gf.train, gf.Loop, gf.explore, gf.save, gf.load, gf.pull, gf.TrainedModel, History)


def methods():
    """The public methods of a trained model that are called with something."""
    return [member for name, member in vars(gf.TrainedModel).items() if name[0] != "_" and inspect.isfunction(member)]


@pytest.mark.parametrize("documented", [*FRONT_DOOR, *methods()], ids=lambda one: one.__qualname__)
def test_the_example_shows_what_happens(documented):
    examples = doctest.DocTestFinder(recurse=False).find(documented, documented.__qualname__)
    assert examples
    assert examples[0].examples, f"{documented.__qualname__} has no example"
    wrong = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    for example in examples:
        runner.run(example, out=wrong.append)
    assert not runner.failures, "".join(wrong)
