"""Predictions and answers: the likeliest possibilities with probabilities, and what a conversation is answered."""

from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.api.trained_model import TrainedModel
from glassformer.core.errors import ChatError, ConfigError, LengthError
from glassformer.data.corpus import write_tokens
from glassformer.generation.answer import (
    ask,
    classify,
    example,
    predict_answers,
    predict_classes,
    predict_masks,
    predict_next,
    predict_texts,
)
from glassformer.generation.conversation import Conversation
from glassformer.models import Batch, build
from glassformer.text import ByteTokenizer, CharTokenizer, PublishedTokenizer
from runs import TINY_MODEL, tiny_session
from sequences import model_of
from tokenizer_files import PUBLISHED, TEXT, chat_bpe


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_a_class_has_the_probability_of_the_classifier():
    model = build("majority")
    params, batch = model.init(0), Batch(np.array([[0, 1, 2, 2]]))
    expected = softmax(np.asarray(model.predict(params, batch)[0])[0])
    known = TrainedModel(model, params)
    [found] = predict_classes(known, [batch], label="abc".__getitem__, top=2)
    [choices] = found.choices
    assert len(choices) == 2
    assert found.answer == choices[0].text == "abc"[int(expected.argmax())]
    assert [one.probability for one in choices] == pytest.approx(sorted(expected, reverse=True)[:2])
    everything = classify(replace(known, labels=("a", "b", "c")), [0, 1, 2, 2])
    assert (everything.label, everything.index) == (found.answer, int(expected.argmax()))
    assert list(everything.probabilities) == ["a", "b", "c"]
    assert list(everything.probabilities.values()) == pytest.approx(expected)
    several = [Batch(np.arange(length)[None] % 3) for length in (8, 2, 5, 2)]
    both = predict_classes(known, several, label=str, top=3)
    alone = [predict_classes(known, [one], label=str, top=3)[0] for one in several]
    assert [one.probability for one in both] == pytest.approx([one.probability for one in alone])


def test_the_next_token_has_the_probability_of_the_last_position():
    model, params = model_of(vocab=256, context=64)
    known = TrainedModel(model, params, ByteTokenizer())
    expected = softmax(model.forward(params, ByteTokenizer().encode("abc"))[0][-1])
    _, found = predict_next(known, ["longer text", "abc"], top=4)
    assert [one.id for one in found.choices[0]] == np.argsort(-expected, kind="stable")[:4].tolist()
    assert found.probability == pytest.approx(expected.max())


def test_a_written_answer_has_the_product_of_its_probabilities(tmp_path):
    session = tiny_session("sort", tmp_path / "run")
    model, params, task = session.model, session.state.params, session.task
    _, found = predict_answers(session.trained, ["000111", "210210"])
    ids, total = task.encode_input("210210").tokens[0].tolist(), 1.0
    start = len(ids)
    while len(ids) <= model.config.context and (len(ids) == start or ids[-1] not in session.trained.end_ids):
        weights = softmax(model.forward(params, np.array(ids))[0][-1])[: task.answer_tokenizer.size]
        total *= weights.max()
        ids.append(int(weights.argmax()))
    assert found.answer == ask(session.trained, "210210") == task.decode_answer(ids[start:])
    assert found.probability == pytest.approx(total)


def test_a_translator_writes_its_answer():
    tokenizer = CharTokenizer("abc", specials=("<pad>", "<bos>", "<eos>"))
    model, params = model_of("encoder-decoder", vocab=tokenizer.size, source_vocab=tokenizer.size)
    known = TrainedModel(model, params, tokenizer, end_ids=(2,), start_id=1)
    expected = known.generate("ab", temperature=0, log_probabilities=0)
    found, _ = predict_texts(known, ["ab", "cabca"])
    assert (found.answer, found.choices) == (expected.text, ())
    assert found.probability == pytest.approx(np.exp(sum(expected.log_probabilities)))


def test_masks_are_judged_one_by_one():
    make, config = PUBLISHED["WordPiece"]
    roles = {name.removesuffix("_token"): token for name, token in config.items() if name.endswith("_token")}
    tokenizer = PublishedTokenizer(make().to_str(), roles=roles)
    model = build("bert-base", vocab=tokenizer.size, width=16, heads=2, layers=1, context=32, feed_forward=16)
    params = model.init(0)
    ids = tokenizer.encode("the [MASK] fox [MASK]", specials=True, parse_special=True)
    places = np.flatnonzero(ids == tokenizer.role_id("mask"))
    expected = softmax(np.asarray(model.forward(params, ids[None])[0])[0, places])
    found = predict_masks(model, params, ids, tokenizer=tokenizer, top=3)
    assert [place[0].id for place in found.choices] == expected.argmax(axis=-1).tolist()
    assert found.probability == pytest.approx(expected.max(axis=-1).prod())
    with pytest.raises(ConfigError, match=r"the input holds no \[MASK\]"):
        predict_masks(model, params, ids[ids != tokenizer.role_id("mask")], tokenizer=tokenizer, top=3)


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


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory, numpy_engine):
    """A model whose tokenizer carries a chat template; what it says is noise."""
    folder = tmp_path_factory.mktemp("chat")
    (folder / "text.txt").write_text(TEXT * 2, encoding="utf-8")
    tokenizer = PublishedTokenizer(chat_bpe().to_str(), roles={"eos": "<|im_end|>"}, chat_template=CHATML)
    write_tokens(folder / "text.txt", folder / "text.bin", tokenizer)
    settings = {**TINY_MODEL, "context": 200, "batch": 1, "steps": 1}
    trained = gf.train(folder / "text.bin", **settings, show=False)
    return gf.load(gf.save(trained, folder / "model"))


def test_an_answer_is_that_of_the_command_and_conversations_that_cannot_be_read_are_refused(model):
    chat = Conversation(model, system=None, max_new_tokens=5, seed=0, temperature=0)
    messages = []
    for text in ("the sea", "the land"):
        messages.append({"role": "user", "content": text})
        answer = model.chat(messages, max_new_tokens=5, temperature=0)
        assert answer.text == "".join(chat.reply(text)).strip()
        assert (answer.finish, len(answer.ids)) == ("length", 5)
        messages.append({"role": "assistant", "content": answer.text})

    messages = [{"role": "user", "content": "the sea"}]
    assert model.chat("the sea", max_new_tokens=3, seed=1) == model.chat(messages, max_new_tokens=3, seed=1)

    with pytest.raises(ChatError, match="the conversation is empty"):
        model.chat([])
    for wrong in (3, ["hello"]):
        with pytest.raises(ChatError, match="is no conversation"):
            model.chat(wrong)
    with pytest.raises(LengthError, match="the conversation has"):
        model.chat("the sea " * 200)
