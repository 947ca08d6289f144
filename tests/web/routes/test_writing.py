"""Writing from the page: what `generate` would write, what sampling cuts away, conversations, pieces, vectors."""

import math

import numpy as np
import pytest

from browser import TEXTS, ended, state, tiny_explorer
from glassformer.api.trained_model import TrainedModel
from glassformer.config import DecoderConfig, EncoderConfig
from glassformer.core.errors import ChatError, ConfigError, LengthError, TokenError
from glassformer.generation.sampling import Sampling
from glassformer.generation.writer import generate_steps
from glassformer.interpret import add, mean, put, scale, zero
from glassformer.models import build
from glassformer.text import PublishedTokenizer
from glassformer.text.chat import encode_chat
from glassformer.web.offers import Offer
from glassformer.web.router import ask, load_routes
from glassformer.web.run_session import probabilities
from glassformer.web.state import read_state
from glassformer.weights.sentence import embed, similarities
from tokenizer_files import CHATML, chat_bpe, word_piece

pytestmark = pytest.mark.usefixtures("numpy_engine")
SIZES = {"width": 8, "heads": 2, "feed_forward": 16, "layers": 1}
DRAWN = {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.001}
CHAT = [{"role": "user", "content": "the sea"}]


def published(name, config, tokenizer, **more):
    """A model of random numbers as one that was published."""
    return TrainedModel(config, build(config).init(0), tokenizer, source=name, **more)


def chatting():
    tokenizer = PublishedTokenizer(chat_bpe().to_str(), roles={"eos": "<|im_end|>"}, chat_template=CHATML)
    config = DecoderConfig(vocab=tokenizer.size, context=80, **SIZES)
    return published("chat", config, tokenizer, chat_template=CHATML, end_ids=(tokenizer.role_id("eos"),))


def reading(name, head):
    tokenizer = PublishedTokenizer(word_piece().to_str(), roles={"mask": "[MASK]"})
    config = EncoderConfig(vocab=tokenizer.size, context=16, head=head, **SIZES)
    return published(name, config, tokenizer)


@pytest.fixture(scope="module")
def explorer(numpy_engine):
    load_routes()
    found = tiny_explorer()
    for subject in (chatting(), reading("vectors", "none"), reading("masks", "tokens")):
        found.add(Offer(subject.title, subject.title, "given", subject.title), subject)
    return found


def written(explorer, count, **question):
    return ended(explorer, ask(explorer, "write", {"state": state("decoder"), **question, "count": count}))


@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_it_writes_what_generation_writes_with_the_same_seed(architecture, explorer):
    found = written(explorer, 6, state=state(architecture), seed=4, **DRAWN)
    subject = explorer.opened(architecture).model
    batch, task = subject.task.encode_input(TEXTS[architecture]), subject.task
    steps = generate_steps(
        subject.model,
        subject.params,
        [batch.tokens[0]],
        sources=None if batch.source is None else [batch.source[0]],
        max_new_tokens=6,
        seed=4,
        sampling=Sampling(**DRAWN),
        known=task.answer_tokenizer.size,
        stop_ids=[i for i in [task.answer_tokenizer.specials.get("<eos>")] if i is not None],
    )
    assert [token["id"] for token in found["tokens"]] == [int(step.ids[0]) for step in steps]


def test_token_by_token_is_the_same_as_all_at_once(explorer):
    ids = []
    for _ in range(5):
        found = ask(explorer, "next", {"state": state("decoder"), "written": ids, "seed": 2, **DRAWN})
        ids.append(found["drawn"]["id"])
    once = written(explorer, 5, seed=2, **DRAWN)
    assert ids == [token["id"] for token in once["tokens"]]
    half = written(explorer, 3, written=ids[:2], seed=2, **DRAWN)
    assert ids[2:] == [token["id"] for token in half["tokens"]]


def test_another_token_can_be_gone_on_from(explorer):
    first = ask(explorer, "next", {"state": state("decoder"), "written": []})
    other = first["choices"][3]["id"]
    second = ask(explorer, "next", {"state": state("decoder"), "written": [other]})
    assert [token["id"] for token in second["written"]] == [other]
    assert second["read"] == first["read"] == len(second["before"])
    subject = explorer.opened("decoder").model
    tokens = [*(token["id"] for token in second["before"]), other]
    logits = np.asarray(
        subject.model.predict(subject.params, subject.batch("x")._replace(tokens=np.array([tokens])))[0]
    )
    p = np.exp(logits[0, -1] - logits[0, -1].max())
    best = second["choices"][0]
    assert best["own"] == pytest.approx(float((p / p.sum())[best["id"]]), abs=1e-12)


def test_every_token_says_what_became_of_it_and_temperature_zero_takes_the_likeliest(explorer):
    found = ask(explorer, "next", {"state": state("decoder"), "written": [], **DRAWN, "top_k": 5})
    own = [choice["own"] for choice in found["choices"]]
    assert own == sorted(own, reverse=True)
    assert len(own) == 24
    assert found["cut"]["top_k"]["count"] == found["count"] - 5
    assert found["left"] <= 5
    for choice in found["choices"]:
        assert (choice["cut"] is None) == (choice["kept"] > 0)
    assert math.isclose(sum(choice["kept"] for choice in found["choices"]), 1)

    found = ask(explorer, "next", {"state": state("decoder"), "written": [], "temperature": 0})
    assert found["drawn"]["id"] == found["choices"][0]["id"]
    assert (found["left"], found["choices"][1]["cut"]) == (1, "temperature")


def test_beyond_the_context_nothing_is_written_and_nothing_cut_off(explorer):
    context = explorer.opened("encoder-decoder").model.model.config.context
    asked = {"state": state("encoder-decoder"), "temperature": 0}
    ids = [4] * (context - 1)
    assert ask(explorer, "next", {**asked, "written": ids})["room"] == 1
    full = ask(explorer, "next", {**asked, "written": [*ids, 4]})
    assert (full["full"], full["choices"]) == (True, [])
    assert written(explorer, 9, **asked, written=[*ids, 4]) == {"tokens": [], "text": full["text"], "full": True}
    long = {**state("decoder"), "text": "x" * 100}
    with pytest.raises(LengthError, match="at most"):
        ask(explorer, "next", {"state": long, "written": []})


def test_steps_of_training_and_changed_weights_reach_what_is_written(explorer):
    plain = ask(explorer, "next", {"state": state("decoder"), "written": []})
    steps = state("decoder", steps=[{"optimizer": "sgd", "lr": 0.5}])
    scaled = state("decoder", changes=[{"word": "scale", "name": "embedding.tokens.table", "value": 3}])
    for changed in (steps, scaled):
        assert ask(explorer, "next", {"state": changed, "written": []})["choices"] != plain["choices"]


def asked(word, name, value=0.0, other="", **where):
    return {"word": word, "name": name, "where": where, "value": value, "other": other}


def at_each(run, name, make):
    """One change for each position of a text, with what the run has there."""
    return [make(name, run[name][:, [n]], position=n) for n in range(run[name].shape[1])]


PAIRS = {  # changes as a page makes them, and as Python makes them while a model writes
    "everywhere": ("decoder", asked("scale", "blocks.1.attention", 3.0), lambda *_: [scale("blocks.1.attention", 3.0)]),
    "one head": (
        "decoder", asked("zero", "blocks.1.attention.output.x", head=1, example=0),
        lambda *_: [zero("blocks.1.attention.output.x", head=1)],
    ),
    "the last position": (
        "decoder", asked("put", "blocks.0", 2.0, position=-1, feature=3),
        lambda *_: [put("blocks.0", 2.0, position=7, feature=3)],
    ),
    "another text": (
        "decoder", asked("take", "blocks.0", other="if y in "), lambda run, there: at_each(there, "blocks.0", put),
    ),
    "part of the way": (
        "decoder", asked("steer", "blocks.0", 4.0, other="if y in ", position=6),
        lambda run, there: [add("blocks.0", 4 * (there["blocks.0"] - run["blocks.0"])[:, [6]], position=6)],
    ),
    "a mean": (
        "decoder", asked("mean", "blocks.0.feed_forward", other="if y in "),
        lambda run, there: [mean("blocks.0.feed_forward", there)],
    ),
    "a weight": (
        "decoder", asked("scale", "blocks.1.attention.value.w", 9.0),
        lambda *_: [scale("blocks.1.attention.value.w", 9.0)],
    ),
    "the decoder": (
        "encoder-decoder", asked("add", "decoder.blocks.1.feed_forward", 9.0, position=2, feature=1),
        lambda *_: [add("decoder.blocks.1.feed_forward", 9.0, position=2, feature=1)],
    ),
    "the encoder": (
        "encoder-decoder", asked("steer", "encoder.blocks.1", 50.0, other="9. juli 1987"),
        lambda run, there: [
            add("encoder.blocks.1", 50 * (there["encoder.blocks.1"] - run["encoder.blocks.1"])[:, [n]], position=n)
            for n in range(12)
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_changes_reach_what_is_written_token_for_token(pair, explorer):
    architecture, change, made = PAIRS[pair]
    text = {"decoder": "for x in", "encoder-decoder": "3. märz 2001"}[architecture]
    model = explorer.opened(architecture).model
    run, there = (model.watch(one) if one else None for one in (text, change["other"]))
    drawn = {"seed": 4, "temperature": 1.5, "top_k": 30}
    own = {"model": architecture, "text": text}
    found, before = (
        written(explorer, 7, state={**own, "changes": changes}, **drawn)["tokens"] for changes in ([change], [])
    )
    wanted = model.generate(text, changes=made(run, there), max_new_tokens=7, **drawn).ids
    assert tuple(token["id"] for token in found)[: len(wanted)] == wanted
    assert [token["own"] for token in found] != [token["own"] for token in before]


def test_tokens_that_were_exchanged_are_read_by_what_is_written(explorer):
    model = explorer.opened("decoder").model
    [i, o, f] = (model.tokenizer.encode(letter)[0] for letter in "iof")
    changes = [asked("put", "tokens", int(i), example=0, position=0), asked("put", "tokens", int(f), position=-7)]
    own = state("decoder", changes=[*changes, asked("put", "targets", int(o), position=0)])
    found = ask(explorer, "next", {"state": own, "written": []})
    assert [token["label"] for token in found["before"]] == list("ifr x in")
    assert list(found["limits"]) == [{"change": 2, "why": "not made: only the loss reads it"}]
    ids = [token["id"] for token in written(explorer, 5, state=own, temperature=0)["tokens"]]
    assert tuple(ids) == model.generate("ifr x in", max_new_tokens=5, temperature=0).ids
    assert ask(explorer, "written_text", {"state": own, "written": ids})["same"]


def test_what_cannot_be_done_while_it_writes_is_named_with_its_reason(explorer):
    changes = [
        asked("scale_gradient", "blocks.0", 2.0),
        asked("take", "blocks.1.attention.attend.weights", other="if y in "),
        asked("freeze", "blocks.1.attention"),
        asked("zero", "positions"),
        asked("put", "blocks.0.attention.attend.weights", 1.0, head=0, position=5, key=-8),
    ]
    found = ask(explorer, "next", {"state": state("decoder", changes=changes), "written": []})
    assert [one["change"] for one in found["limits"]] == [0, 1, 2]  # the last one can be made
    words = "gradient", "pair of tokens", "at the 8 positions"
    for one, word in zip(found["limits"], words, strict=True):
        assert word in one["why"]
    answered = asked("put", "tokens", 4, position=3)  # of the answer
    [limit] = ask(explorer, "next", {"state": state("encoder-decoder", changes=[answered]), "written": []})["limits"]
    assert "writes the token at that position itself" in limit["why"]
    remembered = asked("zero", "decoder.blocks.0.cross_attention.attend.k")
    own = state("encoder-decoder", changes=[remembered])
    assert list(ask(explorer, "next", {"state": own, "written": []})["limits"]) == []
    # A conversation has positions of its own.
    changes = [asked("zero", "blocks.0.attention", position=0), asked("scale", "blocks.0.attention", 2.0)]
    own = {"model": "chat", "text": "the sea", "changes": changes}
    found = ask(explorer, "next", {"state": own, "chat": CHAT, "written": []})
    assert [one["change"] for one in found["limits"]] == [0]
    assert "conversation" in found["limits"][0]["why"]
    ids = [token["id"] for token in written(explorer, 4, state=own, chat=CHAT, temperature=0)["tokens"]]
    model = explorer.opened("chat").model
    assert (
        tuple(ids) == model.chat(CHAT, changes=[scale("blocks.0.attention", 2.0)], max_new_tokens=4, temperature=0).ids
    )


@pytest.mark.parametrize("word", ["zero", "freeze"])
def test_what_is_likeliest_next_is_what_the_changed_run_says(word, explorer):
    changes = [asked("zero", "positions"), asked(word, "blocks.1.attention"), asked("scale", "blocks.0", 2.0)]
    own = state("decoder", changes=changes)
    found = ask(explorer, "next", {"state": own, "written": []})
    expected = probabilities(explorer.session(read_state(own)).run)
    for choice in found["choices"]:
        assert choice["own"] == pytest.approx(expected[choice["id"]], rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"written": [10**6]}, "ids that were written"),
        ({"written": "abc"}, "written is 'abc'"),
        ({"temperature": -1}, "temperature is -1"),
        ({"top_k": 0}, "top_k is 0"),
        ({"seed": -3}, "the seed is -3"),
        ({"speed": 1}, "unknown part 'speed'"),
        ({"chat": CHAT}, "was not made for conversations"),
        ({"state": {"model": "encoder", "text": "00112200"}}, "which does not write"),
    ],
)
def test_what_makes_no_sense_is_refused(explorer, wrong, said):
    with pytest.raises((ConfigError, TokenError), match=said):
        ask(explorer, "next", {"state": state("decoder"), "written": [], **wrong})
    with pytest.raises(ConfigError, match="ask for 1 to 400"):
        ask(explorer, "write", {"state": state("decoder"), "count": 0})


def test_what_was_written_becomes_the_text_or_the_answer_of_all_views(explorer):
    ids = [token["id"] for token in written(explorer, 4, temperature=0)["tokens"]]
    found = ask(explorer, "written_text", {"state": state("decoder"), "written": ids})
    assert found["text"].startswith(TEXTS["decoder"])
    assert found["same"]
    run = ask(explorer, "run", {"state": {**state("decoder"), "text": found["text"]}})
    assert [token["id"] for token in run["tokens"]][-4:] == ids

    asked = {"state": state("encoder-decoder"), "written": [5, 6]}
    found = ask(explorer, "written_text", asked)
    assert (found["text"], found["same"]) == (TEXTS["encoder-decoder"], True)
    run = ask(explorer, "run", {"state": {**state("encoder-decoder"), "answer": found["answer"]}})
    assert [token["id"] for token in run["tokens"]][1:] == [5, 6]


def test_a_conversation_is_read_as_its_template_says(explorer):
    asked = {"state": {"model": "chat", "text": ""}, "chat": CHAT, "written": []}
    found = ask(explorer, "next", asked)
    subject = explorer.opened("chat").model
    assert [token["id"] for token in found["before"]] == encode_chat(subject.tokenizer, CHAT).tolist()
    prompt = ask(explorer, "prompt", {"model": "chat", "chat": CHAT})
    assert prompt["text"] == "<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n"
    assert prompt["count"] == found["read"]
    assert written(explorer, 3, **asked)["tokens"]
    text = ask(explorer, "written_text", {**asked, "written": [5]})
    assert not text["same"]  # names of special tokens are letters in a text


@pytest.mark.parametrize(
    "chat",
    [[], "hello", [{"role": "user"}], [{"role": "judge", "content": "x"}], [{"role": "user", "content": 3}], [3]],
)
def test_conversations_that_are_none_are_refused(explorer, chat):
    with pytest.raises((ChatError, ConfigError)):
        ask(explorer, "prompt", {"model": "chat", "chat": chat})


def test_pieces_of_any_text_come_with_their_ids(explorer):
    found = ask(explorer, "pieces", {"model": "chat", "text": "the sea<|im_end|>"})
    assert "".join(piece["text"] for piece in found["pieces"]) == "the sea<|im_end|>"
    assert not any(piece["special"] for piece in found["pieces"])
    assert found["count"] == len(found["pieces"])
    assert ask(explorer, "pieces", {"model": "encoder", "text": "012"})["pieces"][2]["text"] == "2"
    with pytest.raises(ConfigError, match="text is 3"):
        ask(explorer, "pieces", {"model": "chat", "text": 3})
    with pytest.raises(TokenError):
        ask(explorer, "pieces", {"model": "encoder", "text": "x"})


def test_texts_are_as_similar_as_their_vectors_and_masks_are_filled_in(explorer):
    texts = ["the sea", "the land"]
    found = ask(explorer, "similarity", {"model": "vectors", "texts": texts})
    assert found["cosine"].tolist() == similarities(embed(explorer.opened("vectors").model, texts)).tolist()
    for wrong in (["the sea"], ["the sea", ""], ["the sea", 3], "the sea"):
        with pytest.raises(ConfigError):
            ask(explorer, "similarity", {"model": "vectors", "texts": wrong})
    with pytest.raises(ConfigError, match="only encoders give vectors"):
        ask(explorer, "similarity", {"model": "decoder", "texts": texts})

    found = ask(explorer, "masks", {"model": "masks", "text": "the [MASK]"})
    [place] = found["places"]
    assert len(place) == 8
    assert place[0]["text"] in found["answer"]
    with pytest.raises(ConfigError, match="fills in no masks"):
        ask(explorer, "masks", {"model": "encoder", "text": "0"})
    with pytest.raises(ConfigError, match="holds no"):
        ask(explorer, "masks", {"model": "masks", "text": "the"})
