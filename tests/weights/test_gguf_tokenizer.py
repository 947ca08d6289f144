"""Tokenizers out of GGUF files cut text as those cut it from which the files were made."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import gguf_files as files
from glassformer.core.errors import WeightsError
from glassformer.weights.gguf_tokenizer import read_tokenizer
from tokenizer_files import TEXT, sentencepiece_bpe

TEXTS = [
    "The quick brown fox, 1234567890 times: 3.14 + ²³ = ½!",
    "Don't panic\n\n\n  it's   only\ttests \r\n  ",
    "def f(x):\n    return x ** 2  # größer",
    "naïve cafe\u0301 日本語 текст 😀👩‍👩‍👧 ٣٤٥ \u00a0x",
    " leading and trailing ",
    "DON'T I'LL we'Ve",
]
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read(settings, vocab=1000):
    arrays = {key: np.array(value) for key, value in settings.items() if key.endswith(("scores", "token_type"))}
    return read_tokenizer({**settings, **arrays}, vocab=vocab)


def original(pre):
    """The same vocabulary, with the steps of the published tokenizers."""
    settings = files.byte_tokenizer()
    tokens, merges = settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.merges"]
    model = models.BPE(
        {token: i for i, token in enumerate(tokens)},
        [tuple(merge.split(" ")) for merge in merges],
        ignore_merges=pre == "llama-bpe",
    )
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    if pre in ("qwen2", "llama-bpe"):
        pattern = WORDS.replace("NUMBERS", r"\p{N}" if pre == "qwen2" else r"\p{N}{1,3}")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), letters])
    elif pre == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    else:
        tokenizer.pre_tokenizer = words
    return tokenizer


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_text_is_cut_as_by_the_published_tokenizers(pre):
    ours, _, _ = read(files.byte_tokenizer(pre=pre))
    theirs = original(pre)
    for text in TEXTS:
        assert ours.encode(text).tolist() == theirs.encode(text).ids, text
        if pre != "qwen2":
            assert ours.decode(ours.encode(text)) == text


def test_special_tokens_and_their_roles():
    template = "{{ bos_token }}{{ messages[0]['content'] }}"
    settings = files.byte_tokenizer() | {"tokenizer.chat_template": template}
    ours, start, ends = read(settings)
    end = settings["tokenizer.ggml.eos_token_id"]
    assert ours.specials == {"<|endoftext|>": 0, "<|im_end|>": end}
    assert ours.roles == {"bos": "<|endoftext|>", "eos": "<|im_end|>"}
    assert ours.chat_template == template
    assert start is None
    assert ends == (end, 0)
    assert ours.encode("<|im_end|>", parse_special=True).tolist() == [end]
    assert end not in ours.encode("<|im_end|>")
    assert ours.encode("<tool>").tolist() == [end + 1]  # a word of the user's own is always read whole


def test_a_start_token_is_put_before_text_where_the_file_says_so():
    ours, start, _ = read(files.byte_tokenizer(add_bos_token=True))
    assert start == 0
    assert ours.encode("a", specials=True).tolist() == [0, *ours.encode("a").tolist()]
    default = files.byte_tokenizer(pre="llama-bpe")
    del default["tokenizer.ggml.add_bos_token"]
    assert read(default)[1] == 0


def sentencepiece(**changes):
    """The settings of a SentencePiece tokenizer: the order of its merges has become scores."""
    tokenizer = sentencepiece_bpe()
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda pair: pair[1])]
    ranks: dict[str, int] = {}
    for merge in model["merges"]:
        ranks.setdefault("".join(merge), len(ranks))
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    settings = {
        "model": "llama",
        "tokens": tokens,
        "scores": [-float(ranks.get(token, 10_000)) for token in tokens],
        "token_type": kinds,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in settings.items()}


def joined_by_score(text, tokens, scores):
    """llama.cpp's way: characters, then the join of the highest score, the leftmost of equals, until none is left."""
    ids = {token: i for i, token in enumerate(tokens)}
    symbols = list(text)
    while True:
        joins = [(-scores[ids[a + b]], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in ids]
        if not joins:
            break
        _, i = min(joins)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    found = []
    for symbol in symbols:
        found += [ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return found


SENTENCEPIECE = sentencepiece()
OURS, START_ID, END_IDS = read(SENTENCEPIECE)


@pytest.mark.parametrize("text", [*TEXTS, TEXT[:200]])
def test_pieces_with_scores_are_joined_as_by_the_original(text):
    assert OURS.encode(text, specials=True).tolist() == sentencepiece_bpe().encode(text).ids
    assert OURS.decode(OURS.encode(text)) == text


@given(st.text(alphabet="the quickbrownfxjmps shl.é😀", min_size=1, max_size=40))
def test_pieces_with_scores_are_joined_as_llama_cpp_joins_them(text):
    settings = SENTENCEPIECE
    expected = joined_by_score(
        "▁" + text.replace(" ", "▁"), settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.scores"]
    )
    assert OURS.encode(text).tolist() == expected


def test_a_sentencepiece_model_starts_with_its_start_token():
    assert (START_ID, END_IDS) == (1, (2,))
    assert OURS.roles == {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    without, start, _ = read(sentencepiece(add_space_prefix=False, add_bos_token=False))
    assert start is None
    assert without.decode(without.encode(" a b")) == " a b"
    assert without.encode("fox").tolist() != OURS.encode("fox").tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (files.byte_tokenizer(model="bert"), "model = 'bert': only gpt2 and llama"),
        (files.byte_tokenizer(model=[1, 2]), "model = .*: only gpt2 and llama"),
        (files.byte_tokenizer(add_bos_token=[1, 2]), "add_bos_token = .*: true or false"),
        (files.byte_tokenizer(pre="smolm"), "pre = 'smolm': supported: gpt-2, smollm"),
        (files.byte_tokenizer(tokens=[]), "tokenizer.ggml has tokens = "),
        (files.byte_tokenizer(tokens=["a", "b", "a"], token_type=[1, 1, 1]), "the token 'a' is there twice"),
        (files.byte_tokenizer(token_type=[1, 2]), "token_type = .*one number for each token"),
        (files.byte_tokenizer(merges=["a b c"]), "the merge 'a b c' joins"),
        (files.byte_tokenizer(merges=["a 語"]), "the merge 'a 語' joins"),
        (files.byte_tokenizer(eos_token_id=5000), "eos_token_id = 5000"),
        (sentencepiece(scores=[1.0]), "scores = .*one number for each token"),
        (
            sentencepiece(scores=[True] * len(SENTENCEPIECE["tokenizer.ggml.tokens"])),
            "scores = .*one number for each token",
        ),
        (sentencepiece(add_space_prefix=3), "add_space_prefix = 3: true or false"),
        (sentencepiece(scores=[float("nan")] * len(SENTENCEPIECE["tokenizer.ggml.tokens"])), "scores = "),
    ],
)
def test_damaged_settings_are_named(settings, message):
    with pytest.raises(WeightsError, match=message):
        read(settings)


def test_more_tokens_than_the_model_knows_are_refused():
    with pytest.raises(WeightsError, match="tokens, the model 100"):
        read(files.byte_tokenizer(), vocab=100)
