"""Every public name of the front door has an example, and every example shows what happens."""

import doctest
import inspect

import pytest

import glassformer as gf
from glassformer.training import History

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
