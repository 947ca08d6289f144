"""Answers to what a task asks: the likeliest class, or the likeliest ids as far as the model reads."""

import numpy as np
import pytest

from glassformer.generation.answer import ask, example
from glassformer.models import Batch
from runs import tiny_session


def test_an_encoder_answers_with_its_likeliest_class(tmp_path):
    session = tiny_session("majority", tmp_path / "run")
    logits, _ = session.model.predict(session.trained.params, session.task.encode_input("00112220"))
    assert ask(session.trained, "00112220") == session.task.decode_answer([int(np.argmax(logits))])


@pytest.mark.parametrize("task", ["sort", "dates"])
def test_each_id_of_an_answer_is_what_one_forward_pass_says(task, tmp_path):
    session = tiny_session(task, tmp_path / "run")
    trained, asked = session.trained, session.task.encode_input(session.task.prompts[0])
    read = example(trained, session.task, session.task.prompts[0])
    assert read.tokens.shape[-1] <= session.model.config.context
    logits, _ = session.model.predict(trained.params, Batch(read.tokens, source=read.source))
    start = asked.tokens.shape[-1]
    likeliest = np.argmax(logits[0, start - 1 :, : session.task.answer_tokenizer.size], axis=-1)
    assert read.tokens[0, start:].tolist() == likeliest[: read.tokens.shape[-1] - start].tolist()
