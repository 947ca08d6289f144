"""What one looks into: a text as a batch, with the model's own answer or with another."""

import numpy as np
import pytest

from browser import TEXTS, tiny_model
from glassformer import ops
from glassformer.api.trained_model import TrainedModel
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret.reading import answers
from glassformer.runs.start import new_session
from runs import TINY

pytestmark = pytest.mark.usefixtures("numpy_engine")


@pytest.fixture(scope="module")
def sorter(numpy_engine):
    return TrainedModel.of(new_session("sort", settings={**TINY["sort"], "steps": 1}).trained)


def test_an_answer_stands_behind_its_question_or_is_said_about_a_source(sorter):
    own, other = sorter.batch("012012"), sorter.batch("012012", "22")
    assert answers(sorter)
    assert own.tokens.shape == (1, 11)
    assert other.tokens.tolist() == [[0, 1, 2, 0, 1, 2, 2, 2]]
    assert other.targets.tolist() == [[1, 2, 0, 1, 2, 2, 2, ops.IGNORE]]

    model = tiny_model("encoder-decoder")
    text = TEXTS["encoder-decoder"]
    batch = model.batch(text, "2001")
    np.testing.assert_array_equal(batch.source, model.batch(text).source)
    assert model.answer_tokenizer.decode(batch.tokens[0, 1:]) == "2001"


def test_models_without_answers_take_none(sorter):
    model = tiny_model("decoder")
    assert not answers(model)
    assert not answers(tiny_model("encoder"))
    with pytest.raises(ConfigError, match="gives no answers apart from its text"):
        model.batch(TEXTS["decoder"], "x")
    with pytest.raises(LengthError, match="the text with its answer has 18 tokens"):
        sorter.batch("012012", "0" * 12)
