"""Which words decided: what is left out, what is integrated, and that planted words come first."""

import random

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, DataError, LengthError, TokenError
from glassformer.core.tree import tree_map
from glassformer.interpret import put
from glassformer.text import CharTokenizer
from glassformer.text.tokenizer import spans_of

NEUTRAL = """
the a this that chair table we bought it in may for our home and then some other day two more people came by with old
small big thing which was near my house when rain fell on green hill
""".split()  # noqa: SIM905
DECIDING = {
    "good": ("splendid", "lovely", "superb"),
    "bad": ("awful", "broken", "ghastly"),
    "fair": ("average", "passable", "mediocre"),
}


def planted(count, seed):
    """Texts of neutral words with one that decides: the text, its label, that word."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        label = draw.choice(list(DECIDING))
        words, word = draw.choices(NEUTRAL, k=draw.randint(4, 7)), draw.choice(DECIDING[label])
        words.insert(draw.randrange(len(words) + 1), word)
        found.append((" ".join(words) + draw.choice(("", ".", "!")), label, word))
    return found


@pytest.fixture(scope="module")
def model():
    rows = [{"text": text, "label": label} for text, label, _ in planted(500, 0)]
    for row in rows[::8]:  # without that word any label is as good, which the model must learn as well
        row["text"] = " ".join(word for word in row["text"].split() if word.strip(".!") in NEUTRAL)
    return gf.train(rows, steps=300, width=32, layers=1, heads=2, feed_forward=64, lr=3e-3, show=False)


@pytest.fixture(scope="module")
def exact(model):
    """The same in double precision."""
    found = model.__copy__()
    found.params = tree_map(lambda leaf: leaf.astype(np.float64), model.params)
    return found


def test_planted_words_come_first_in_both_measures(model):
    texts = planted(100, 1)
    found = [model.explain(text) for text, _, _ in texts]
    for measure in ("left_out", "integrated"):
        first = [max(one.words, key=lambda word: abs(getattr(word, measure))).word for one in found]
        assert sum(word == own for word, (_, _, own) in zip(first, texts, strict=True)) >= 95, measure


def test_integrated_gradients_sum_to_the_logit_minus_that_of_the_baseline(exact):
    text = "We bought this superb chair, and it fell."
    for name in exact.labels:
        found = exact.explain(text, name)
        run = exact.watch(text)
        weights = np.where(np.arange(3) == exact.labels.index(name), 1, -0.5)
        average = exact.params["embedding"]["tokens"]["table"].mean(axis=0)
        baseline = run.changed(put("embedding.tokens", average))
        expected = float((run.logits[0] - baseline.logits[0]) @ weights)
        total = sum(word.integrated for word in found.words) + found.rest
        assert total == pytest.approx(expected, rel=1e-3)
        assert found.difference == pytest.approx(expected, rel=1e-10)
        assert found.missing == pytest.approx(expected - total, abs=1e-9)


def test_a_word_left_out_is_a_text_classified_without_it(exact):
    found = exact.explain("We bought this superb chair, and  it fell.", "bad")
    assert " ".join(word.word for word in found.words) == "We bought this superb chair , and it fell ."
    assert found.without(0) == "bought this superb chair, and  it fell."
    assert found.without(4) == "We bought this superb , and  it fell."
    assert found.without(6) == "We bought this superb chair, it fell."
    assert found.without(9) == "We bought this superb chair, and  it fell"
    for number, word in enumerate(found.words):
        assert found.text[word.start : word.end] == word.word
        without = exact.classify(found.without(number)).probabilities["bad"]
        assert found.probability - without == pytest.approx(word.left_out, abs=1e-12)


def test_a_text_is_shown_in_color_with_its_numbers(model):
    found = model.explain("we bought this superb & old chair")
    result = found.result()
    assert result.records[0]["word"] == "superb"
    assert repr(found).splitlines()[2].startswith("superb ")
    page = found._repr_html_()
    assert page.count("rgba(202,60,50,0.60)") >= 2  # the word that decided, in both measures
    assert ">&amp;</span>" in page
    for passage in result.passages:
        assert "".join(part for part, _ in passage.parts) == found.text
        assert max(abs(share) for _, share in passage.shares()) == 1


def test_one_word_is_explained_by_its_tokens():
    symbols = gf.train("majority", steps=1, show=False)
    found = symbols.explain("0012")
    assert [(word.word, word.start) for word in found.words] == [("0", 0), ("0", 1), ("1", 2), ("2", 3)]
    assert symbols.explain("1").words[0].left_out is None  # nothing would be left to read
    assert "1" in repr(symbols.explain("1"))


def test_a_long_text_is_refused_or_cut_after_a_word(model):
    long = "the chair was superb " * 200
    with pytest.raises(LengthError, match="the input has"):
        model.explain(long)
    found = model.explain(long, truncate=True)
    assert long.startswith(found.text)
    assert found.text.endswith(found.words[-1].word)
    assert len(model.tokenizer.encode(found.text)) <= model.config.context
    assert found.cut == 800 - len(found.words)
    assert f"the last {found.cut} words were cut off" in repr(found)
    assert model.explain("a chair", truncate=True).cut == 0


def test_what_has_no_answer_is_refused(model):
    with pytest.raises(ConfigError, match="so it tells no classes apart"):
        gf.train("counting", steps=1, show=False).explain("1 2")
    for text, error, fact in [
        ("", DataError, "no words"), (" ", DataError, "no words"), (["a"], DataError, "the text is"),
    ]:  # fmt: skip
        with pytest.raises(error, match=fact):
            model.explain(text)
    with pytest.raises(TokenError, match="there is no class 'poor'"):
        model.explain("a chair", "poor")


@pytest.mark.parametrize("text", ["we bought a  chair", "naïve <pad> 椅子 🪑!"])
def test_tokens_stand_where_their_characters_are(model, text):
    """Special tokens in a text are spelled out, and a character of several bytes is several tokens."""
    for tokenizer in (model.tokenizer, CharTokenizer(text), gf.text.ByteTokenizer()):
        spans = spans_of(tokenizer, text)
        assert len(spans) == len(tokenizer.encode(text))
        covered = {place for start, end in spans for place in range(start, end)}
        assert covered >= {place for place, letter in enumerate(text) if not letter.isspace()}
