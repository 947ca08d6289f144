"""Streaming: pieces together are the text, none holds half a character, and stop strings end it wherever it is cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models

from glassformer.core.errors import ConfigError
from glassformer.text import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    PublishedTokenizer,
    StreamDecoder,
    WordTokenizer,
)
from glassformer.text.stream import StopStrings
from tokenizer_files import PUBLISHED, TEXT

EMOJI = "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 e\u0301 日本語 ﷽ \ufffd"
KINDS = {
    "chars": CharTokenizer("abc \ufffd", specials=("<eos>",)),
    "bytes": ByteTokenizer(specials=("<eos>",)),
    "words": WordTokenizer(["one", "two"], specials=("<eos>",)),
    "bpe": BPETokenizer.train(TEXT, size=300, specials=("<eos>",)),
    **{name: PublishedTokenizer(make().to_str()) for name, (make, _) in PUBLISHED.items()},
}


def streamed(tokenizer, ids, **settings):
    stream = StreamDecoder(tokenizer, **settings)
    return [*(stream.push(i) for i in ids), stream.finish()]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_pieces_together_are_the_text_for_any_ids(kind, data):
    tokenizer = KINDS[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=60))
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["bytes", "bpe", *PUBLISHED])
@given(text=st.text(alphabet=st.characters(), max_size=40))
def test_pieces_together_are_the_text_for_any_text(kind, text):
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text)
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@given(ids=st.lists(st.sampled_from([0xF0, 0x9F, 0x98, 0x80, 0xE2, 0xED, 0xA0, 0xC3, 0xFF, 65, 256]), max_size=80))
def test_broken_bytes_come_out_as_they_decode(ids):
    assert "".join(streamed(KINDS["bytes"], ids)) == KINDS["bytes"].decode(ids)
    bpe = KINDS["bpe"]
    letters = [*bpe.encode("😀€").tolist(), bpe.specials["<eos>"]]
    pushed = [letters[i % len(letters)] for i in ids]
    assert "".join(streamed(bpe, pushed)) == bpe.decode(pushed)
    llama = KINDS["sentencepiece BPE"]
    pushed = [3 + i if i < 256 else llama.size - 1 for i in ids]  # bytes follow the three special tokens
    assert "".join(streamed(llama, pushed)) == llama.decode(pushed)


@pytest.mark.parametrize("kind", ["bytes", "bpe", "byte-level BPE", "sentencepiece BPE"])
def test_no_piece_holds_half_a_character(kind):
    tokenizer = KINDS[kind]
    text = EMOJI.replace("\ufffd", "")
    pieces = streamed(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    for piece in pieces:
        assert "\ufffd" not in piece
        assert piece.encode("utf-8").decode() == piece
    assert len([piece for piece in pieces if piece]) > 5


def test_a_character_comes_with_its_last_byte_and_the_space_after_a_prompt_is_there():
    stream = StreamDecoder(KINDS["bytes"])
    assert [stream.push(i) for i in "a😀é".encode()] == ["a", "", "", "", "😀", "", "é"]
    assert stream.finish() == ""
    assert [stream.push(0xF0), stream.push(0x9F), stream.finish()] == ["", "", "\udcf0\udc9f"]
    assert stream.push(65) == "A", "a finished decoder starts anew"

    for kind in ("Unigram", "WordPiece", "sentencepiece BPE", "words"):
        tokenizer = KINDS[kind]
        before, after = ("one", "two") if kind == "words" else ("the", "sea")
        first, second = tokenizer.encode(before), tokenizer.encode(after)
        assert "".join(streamed(tokenizer, second, after=first)) == f" {after}", kind
        assert "".join(streamed(tokenizer, second)) == after, kind


def test_earlier_text_that_is_rewritten_is_waited_for_and_ids_without_text_do_not_matter():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex("ab"), "X")])
    held = PublishedTokenizer(tokenizer.to_str())
    assert streamed(held, [0, 1, 0]) == ["", "", "", "Xa"]
    tokenizer.decoder = decoders.CTC(pad_token="<unk>")
    held = PublishedTokenizer(tokenizer.to_str())
    assert "".join(streamed(held, [0, 0, 2, 1])) == held.decode([0, 0, 2, 1])

    tokenizer = Tokenizer(models.WordLevel({"▁a": 0, "▁": 9}, unk_token="▁"))  # ids 1 to 8 are holes
    tokenizer.decoder = decoders.Metaspace()
    holes = PublishedTokenizer(tokenizer.to_str())
    for ids in ([0, *range(1, 9)] * 4 + [0], [9, *range(1, 9)] * 4 + [0]):
        assert "".join(streamed(holes, ids)) == holes.decode(ids)


def test_each_id_costs_the_decoding_of_a_few_others():
    class Counting(ByteTokenizer):
        decoded = 0

        def decode(self, ids):
            self.decoded += len(ids)
            return super().decode(ids)

    tokenizer = Counting()
    text = "日" * 2000
    assert "".join(streamed(tokenizer, tokenizer.encode(text))) == text
    assert tokenizer.decoded < 20 * 6000


def through(pieces, stops):
    """What comes out piece by piece, and all of it with what is left at the end."""
    watch = StopStrings(stops)
    shown = [watch.push(piece) for piece in pieces]
    return shown, "".join(shown) + watch.finish(), watch.stopped


def test_a_stop_string_may_span_pieces_and_is_never_shown():
    assert through(["one", " E", "N", "D two"], ["END"]) == (["one", " ", "", ""], "one ", True)
    assert through(["a E", "N", "ough"], ["END"]) == (["a ", "", "ENough"], "a ENough", False)
    assert through(["a EN"], ["END"]) == (["a "], "a EN", False)


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("Привет, мир. Конец. Ещё", "Конец", "Привет, мир. "),
        ("これは終わりです", "終わり", "これは"),
        ("مرحبا قف هنا", "قف", "مرحبا "),
        ("so 👩‍👩‍👧 long", "👩‍👩‍👧", "so "),
    ],
)
def test_any_script(text, stop, kept):
    assert through(list(text), [stop])[1:] == (kept, True)


def test_the_stop_string_that_is_complete_first_counts():
    assert through(list("aabaabaaac"), ["aabaaa"])[1:] == ("aab", True)
    assert through(["abcX"], ["abcX", "bc"])[1] == "a"
    assert through(["xabc"], ["bc", "abc"])[1] == "x"


@given(st.text("ab ", max_size=30), st.lists(st.text("ab ", min_size=1, max_size=4), max_size=3), st.data())
def test_the_cuts_make_no_difference(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds)]
    shown, whole, stopped = through(pieces, stops)
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    expected = text
    if ends:
        expected = min((text[: min(ends) - len(s)] for s in stops if text[: min(ends)].endswith(s)), key=len)
    assert (whole, stopped) == (expected, bool(ends))
    assert expected.startswith("".join(shown))


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ConfigError, match="a stop string is empty"):
        StopStrings(["a", ""])
