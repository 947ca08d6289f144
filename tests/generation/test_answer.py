"""Answers: the likeliest, or drawn with the probabilities of the softmax; never beyond what the model reads."""

import numpy as np
import pytest

from glassformer.generation.answer import answer, answer_length, continue_ids
from glassformer.models import Batch
from runs import tiny_session


def follower(tokens):
    """A model that counts: after 3 comes 4, in a vocabulary of ten."""
    return np.eye(10)[(tokens + 1) % 10] * 9.0


def test_the_likeliest_id_is_appended_again_and_again():
    ids = continue_ids(follower, np.array([[3], [8]]), count=4, context=8)
    assert ids.tolist() == [[4, 5, 6, 7], [9, 0, 1, 2]]


def test_nothing_is_asked_for_nothing():
    assert continue_ids(follower, np.array([[3]]), count=0, context=8).shape == (1, 0)


def test_a_full_context_slides():
    lengths = []

    def predict(tokens):
        lengths.append(tokens.shape[-1])
        return follower(tokens)

    ids = continue_ids(predict, np.array([[1, 2]]), count=5, context=3)
    assert ids.tolist() == [[3, 4, 5, 6, 7]]
    assert lengths == [2, 3, 3, 3, 3]


def test_drawing_follows_the_probabilities():
    shares = np.array([0.6, 0.3, 0.1])
    tokens = np.zeros((20000, 1), dtype=np.int64)
    drawn = continue_ids(
        lambda tokens: np.broadcast_to(np.log(shares), (*tokens.shape, 3)),
        tokens,
        count=1,
        context=4,
        rng=np.random.default_rng(0),
    )
    np.testing.assert_allclose(np.bincount(drawn[:, 0]) / len(tokens), shares, atol=0.01)


def test_an_encoder_answers_with_its_likeliest_class(tmp_path):
    session = tiny_session("majority", tmp_path / "run")
    batch = session.task.encode_input("00112220")
    logits, _ = session.model.predict(session.state.params, batch)
    ids = answer(session.model, session.state.params, batch, count=5)
    assert ids.tolist() == [int(np.argmax(logits))]
    assert session.trained.ask("00112220") in ("0", "1", "2")


@pytest.mark.parametrize("task", ["sort", "dates"])
def test_an_answer_fills_the_context_and_no_more(task, tmp_path):
    session = tiny_session(task, tmp_path / "run")
    batch = session.task.encode_input(session.task.prompts[0])
    count = answer_length(session.model, batch)
    assert len(answer(session.model, session.state.params, batch, count=count)) == count
    read = batch.tokens.shape[-1] + count - 1  # the last id is written and never read
    assert read <= session.model.config.context


def test_each_id_is_what_one_forward_pass_says(tmp_path):
    session = tiny_session("sort", tmp_path / "run")
    batch = session.task.encode_input("210210")
    ids = answer(session.model, session.state.params, batch, count=4)
    read = np.concatenate([batch.tokens[0], ids[:-1]])[None]
    logits, _ = session.model.predict(session.state.params, Batch(read))
    assert ids.tolist() == np.argmax(logits[0, -4:], axis=-1).tolist()


def test_likeliest_ids_and_cut_distributions_can_be_drawn():
    logits = np.log(np.array([[[0.5, 0.3, 0.15, 0.05]]]))
    rng = np.random.default_rng(0)

    def drawn(**sampling):
        return set(
            continue_ids(lambda _: logits, np.array([[0]]), count=40, context=4, rng=rng, **sampling)[0].tolist()
        )

    assert drawn(temperature=0) == {0}
    assert drawn(top_k=2) == {0, 1}
    assert drawn(top_p=0.7) == {0, 1}
    assert drawn() == {0, 1, 2, 3}
