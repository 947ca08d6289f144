"""Text in, text out: a model with its tokenizers as one object."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from glassformer.api.trained_model import TrainedModel
from glassformer.core.errors import ConfigError, LengthError, TokenError
from glassformer.generation import Generation
from glassformer.models import build
from glassformer.text import ByteTokenizer, CharTokenizer, PublishedTokenizer, WordTokenizer
from sequences import model_of

LETTERS = "abcdefghijklmno"  # with <bos> and <eos> 17 tokens


def letters(**settings):
    """A decoder over letters, with a start and an end token."""
    model, params = model_of(**settings)
    tokenizer = CharTokenizer(LETTERS, specials=("<bos>", "<eos>"))
    return TrainedModel(model, params, tokenizer, end_ids=(1,), start_id=0)


def translator():
    """An encoder-decoder from letters to digits."""
    model, params = model_of("encoder-decoder", vocab=12, source_vocab=15, seed=3)
    writer = CharTokenizer("0123456789", specials=("<bos>", "<eos>"))
    return TrainedModel(model, params, CharTokenizer(LETTERS), writer, end_ids=(1,), start_id=0)


def of_bytes(**settings):
    """A decoder over bytes without special tokens, context 64."""
    model, params = model_of(vocab=256, context=64, **settings)
    return TrainedModel(model, params, ByteTokenizer())


def test_one_prompt_gives_one_answer_and_a_list_gives_a_list():
    model = letters()
    one = model.generate("abc", max_new_tokens=6)
    assert isinstance(one, Generation)
    assert model.generate(["abc"], max_new_tokens=6) == [one]
    several = model.generate("abc", max_new_tokens=6, n=3)
    assert several[0] == one
    assert len(several) == 3
    both = model.generate(["abc", "d"], max_new_tokens=6, n=3)
    assert both == [several, model.generate("d", max_new_tokens=6, n=3)]


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 1.3, "top_p": 0.9, "seed": 4}])
@pytest.mark.parametrize("build_model", [letters, translator])
def test_a_batch_says_what_single_prompts_say(build_model, settings):
    model = build_model()
    prompts = ["abc", "o", "hijklmnoabc", "gg"]
    together = model.generate(prompts, max_new_tokens=12, **settings)
    assert together == [model.generate(prompt, max_new_tokens=12, **settings) for prompt in prompts]


def test_text_and_ids_belong_together_behind_the_start_token():
    model = letters()
    for answer in model.generate(["abc", "k", "no"], n=5, temperature=1.5, max_new_tokens=15):
        for one in answer:
            ended = one.ids[-1] == 1
            assert one.finish == ("stop" if ended else "length")
            assert one.text == model.tokenizer.decode(one.ids[:-1] if ended else one.ids)
            assert one.log_probabilities is one.top is one.score is None

    assert model.generate("", max_new_tokens=5, temperature=0).text
    with pytest.raises(LengthError, match="the source is empty"):
        translator().generate("")


@pytest.mark.parametrize("build_model", [letters, translator, of_bytes])
def test_the_pieces_of_a_stream_are_the_text_of_generate(build_model):
    model = build_model()
    for seed in range(4):
        settings = {"max_new_tokens": 20, "temperature": 1.4, "seed": seed, "stop": ["b", "7"]}
        assert "".join(model.stream("abc", **settings)) == model.generate("abc", **settings).text


class Scripted:
    """A decoder over bytes that says one text, whatever it reads: a stand-in for `model_of` with known answers."""

    def __new__(cls, text, prompt_bytes):
        said = list(text.encode()) if isinstance(text, str) else list(text)

        class Model(type(build("tiny-decoder"))):
            def read(self, params, tokens, cache, *, mask=None, positions=None, last=False):
                logits = np.zeros((*tokens.shape, 257))
                for place in np.ndindex(tokens.shape):
                    step = int(positions[place]) - (prompt_bytes - 1)
                    logits[(*place, said[step] if 0 <= step < len(said) else 256)] = 50.0
                return logits[..., -1:, :] if last else logits

        model = Model(build("tiny-decoder", vocab=257, context=200).config)
        return TrainedModel(model, model.init(0), ByteTokenizer(specials=("<eos>",)), end_ids=(256,))


def test_a_stream_never_holds_half_a_character_until_its_end():
    text = "naïve 日本語 👩‍👩‍👧!"
    model = Scripted(text, 2)
    pieces = list(model.stream("ab"))
    assert "".join(pieces) == text == model.generate("ab").text
    assert all(piece.isprintable() or "\u200d" in piece for piece in pieces)
    assert "日" in pieces

    model = Scripted(b"ok \xe6\x97", 2)
    assert model.generate("ab").text == b"ok \xe6\x97".decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("stop", "expected"),
    [("END", "one two "), (["nothing", "wo"], "one t"), ("終わり", "one two END 日本"), ("👋", None), ((), None)],
)
def test_stop_strings_span_tokens_in_any_script(stop, expected):
    text = "one two END 日本終わり three"
    model = Scripted(text, 2)
    answer = model.generate("ab", stop=stop)
    assert answer.text == (text if expected is None else expected)
    assert answer.finish == "stop"  # the end token, where no stop string came
    assert "".join(model.stream("ab", stop=stop)) == answer.text
    searched = model.generate("ab", stop=stop, beams=2)
    assert searched.text == answer.text


@given(st.text("xy<", min_size=1, max_size=12), st.text("xy<", min_size=1, max_size=3))
def test_a_stop_string_in_the_prompt_does_not_matter_and_none_is_ever_shown(text, stop):
    model = Scripted(text, len(stop))
    assert model.generate(stop, stop=stop).text == text.partition(stop)[0]


def test_words_continue_the_prompt_with_a_space():
    words = WordTokenizer([f"w{i}" for i in range(17)])
    model, params = model_of()
    found = TrainedModel(model, params, words).generate("w1 w2", max_new_tokens=3)
    assert found.text == " " + words.decode(found.ids)


@pytest.mark.parametrize("stop", [" a", " b", "a", " ab", "b a"])
def test_beams_find_a_stop_string_where_one_token_after_the_other_does(stop):
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "▁b", "ab", "é"])}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    inner.add_special_tokens(["<unk>", "<s>", "</s>"])
    for seed in range(8):
        model, params = model_of(vocab=10, seed=seed)
        writer = TrainedModel(model, params, PublishedTokenizer(inner.to_str()), end_ids=(2,), start_id=1)
        settings = {"stop": stop, "max_new_tokens": 8}
        greedy, found = writer.generate("ab", temperature=0, **settings), writer.generate("ab", beams=1, **settings)
        assert (found.text, found.ids, found.finish) == (greedy.text, greedy.ids, greedy.finish)
        for one in writer.generate("ab", beams=3, n=3, **settings):
            assert stop not in one.text


def test_the_default_temperature_is_documented_and_log_probabilities_come_on_request():
    model = letters()
    assert model.generate("abc") == model.generate("abc", temperature=0.8)
    greedy = model.generate("abc", temperature=0, seed=1)
    assert greedy == model.generate("abc", temperature=0, seed=2) == model.generate("abc", top_k=1)
    assert greedy.ids == model.generate("abc", beams=1).ids

    answer = model.generate("abc", log_probabilities=2, max_new_tokens=7, temperature=0)
    assert len(answer.log_probabilities) == len(answer.top) == len(answer.ids)
    for token, log, top in zip(answer.ids, answer.log_probabilities, answer.top, strict=True):
        assert top[0] == (token, log)
        assert len(top) == 2
    assert model.generate("abc", log_probabilities=0, max_new_tokens=7).top is None


@pytest.mark.parametrize("build_model", [letters, translator])
def test_beams_return_the_best_answers_with_their_scores(build_model):
    model = build_model()
    best = model.generate("abc", beams=4, n=3, max_new_tokens=8, length_penalty=0.5, log_probabilities=0)
    scores = [one.score for one in best]
    assert scores == sorted(scores, reverse=True)
    for one in best:
        assert one.score == pytest.approx(sum(one.log_probabilities) / len(one.ids) ** 0.5)
    assert model.generate("abc", beams=4, max_new_tokens=8, length_penalty=0.5).ids == best[0].ids


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"stop": [""]}, "a stop string is empty"),
        ({"n": 0}, "n is 0"),
        ({"length_penalty": 2.0}, "belong to beam search"),
        ({"early_stopping": True}, "belong to beam search"),
        ({"beams": 2, "temperature": 1}, "beam search takes the likeliest answer, but temperature asks to draw one"),
        ({"beams": 2, "n": 3}, "n is 3, but the search has 2 beams"),
        ({"beams": 2, "log_probabilities": 3}, "of the chosen tokens only"),
        ({"max_new_tokens": "many"}, "max_new_tokens is 'many'"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"stop": 3}, "stop is 3"),
        ({"stop": [3], "beams": 2}, r"stop is \[3\]"),
    ],
)
def test_settings_without_meaning_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        letters().generate("abc", **settings)


def test_what_can_be_neither_read_nor_written_is_refused_at_once():
    model = letters()
    for settings in ({"top_p": 0}, {"max_new_tokens": 0}, {"stop": [""]}):
        with pytest.raises(ConfigError):
            model.stream("abc", **settings)

    with pytest.raises(TokenError, match=r"character 'ß' \(U\+00DF\) at position 1"):
        letters().generate("aßc")
    with pytest.raises(LengthError, match="the prompt has 31 tokens but this model reads at most 24") as error:
        letters().generate("a" * 30)
    assert "shorten it" in error.value.hint
    with pytest.raises(LengthError, match="the source has 30 tokens but this model reads at most 24"):
        translator().generate("a" * 30)

    encoder = build("majority")
    with pytest.raises(ConfigError, match=r"is an encoder, which .* does not write text"):
        TrainedModel(encoder, encoder.init(0), ByteTokenizer()).generate("a")
    model, params = model_of("encoder-decoder")
    with pytest.raises(ConfigError, match="there is no start_id"):
        TrainedModel(model, params, ByteTokenizer()).generate("a")
