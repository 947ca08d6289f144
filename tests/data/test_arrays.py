"""Arrays of token ids as a task: what they say about a model, and what is refused."""

import re

import numpy as np
import pytest

from glassformer.core.errors import ConfigError, DataError, ShapeError
from glassformer.data.arrays import array_task
from glassformer.data.examples import Examples, Windows
from glassformer.models import Batch
from glassformer.ops import IGNORE

ROWS = np.arange(40).reshape(10, 4) % 7


def test_classes_make_an_encoder_and_rows_or_a_long_text_a_decoder():
    task = array_task((ROWS, np.arange(10) % 3))
    assert (task.architecture, task.metric) == ("encoder", "classes")
    assert (task.settings["vocab"], task.settings["classes"], task.settings["context"]) == (7, 3, 4)
    assert (len(task.train), len(task.held_out)) == (9, 1)
    assert task.decode_answer([2]) == "2"

    task = array_task(ROWS)
    batch = task.held_out.rows
    assert (task.architecture, task.metric, task.settings["context"]) == ("decoder", "none", 3)
    np.testing.assert_array_equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    asked = ROWS.copy()
    asked[:, :2] = IGNORE
    assert array_task((ROWS, asked)).metric == "sequence"

    task = array_task(np.arange(100) % 9, context=8)
    assert isinstance(task.train, Windows)
    assert (len(task.train.tokens), len(task.held_out.tokens), task.settings["vocab"]) == (90, 10, 9)


def test_sources_make_an_encoder_decoder_and_what_is_held_out_is_taken_as_it_is():
    task = array_task(Batch(ROWS, ROWS, source=ROWS + 3))
    assert (task.architecture, task.metric) == ("encoder-decoder", "sequence")
    assert (task.settings["vocab"], task.settings["source_vocab"]) == (7, 10)
    assert (task.tokenizer.size, task.answer_tokenizer.size) == (10, 7)
    typed = task.encode_input("3 4")
    assert (typed.source.tolist(), typed.tokens.shape) == ([[3, 4]], (1, 1))

    task = array_task((ROWS, ROWS), architecture="encoder")
    assert (task.settings["head"], task.settings["classes"]) == ("tokens", None)

    task = array_task(Examples(Batch(ROWS, ROWS)), validation=(ROWS[:2], ROWS[:2]))
    assert (len(task.train), len(task.held_out)) == (10, 2)
    assert "vocab" not in array_task(Endless(), validation=Endless()).settings
    with pytest.raises(ConfigError, match="cannot be split"):
        array_task(Endless())


class Endless:
    """A data set of one's own."""

    longest = count = 4

    def __len__(self):
        return 4

    def batch(self, step, size, seed, *, rows=None):
        return Batch(ROWS[:size], ROWS[:size])

    def batches(self, size):
        return iter([Batch(ROWS[:4], ROWS[:4])])


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ("text", DataError, "data of the type str"),
        ((ROWS, ROWS[:, :2]), ShapeError, r"the targets \(10, 2\)"),
        ((ROWS[0], ROWS[0]), ShapeError, "the tokens have shape"),
        (ROWS * 0.5, DataError, "of type float64"),
        (ROWS[:, :1], ShapeError, "T of at least 2"),
        (ROWS[:1], DataError, "cannot be split"),
        (np.arange(3), DataError, "too few to hold out"),
        (Batch(ROWS), DataError, "has no targets"),
    ],
)
def test_what_cannot_be_learned_is_refused(data, error, words):
    with pytest.raises(error) as found:
        array_task(data)
    assert found.value.hint
    assert re.search(words, str(found.value))


def test_a_dataset_that_lacks_something_is_refused_by_its_name():
    class Half:
        def batch(self, step, size, seed, *, rows=None): ...

        def batches(self, size): ...

        def __len__(self):
            return 3

    with pytest.raises(DataError, match="no count and no longest"):
        array_task(Half(), validation=Half())
