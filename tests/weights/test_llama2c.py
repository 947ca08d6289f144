"""llama2.c: its models tell exactly the stories that its own program prints."""

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.api.loading import load
from glassformer.core.errors import WeightsError
from glassformer.core.tree import check_same, flatten
from glassformer.text import StreamDecoder
from glassformer.weights.llama2c import open_llama2c, read_vocabulary
from published_models import data_file

STEPS, BY_HAND = 200, 60
PRINTED = "beeb5cb46785efee81a8545300b31e396b595e5ce6f3b77db201545501981d14"
"""SHA-256 of what `./run stories260K.bin -z tok512.bin -t 0.0 -n 200` prints, less the last line end."""


def pieces_of(path):
    data, place, pieces, scores = path.read_bytes(), 4, [], []
    while place < len(data):
        score, length = struct.unpack_from("<fi", data, place)
        pieces.append(data[place + 8 : place + 8 + length])
        scores.append(score)
        place += 8 + length
    return pieces, scores


def read_weights(path):
    """Return the sizes, and the arrays in the order of `memory_map_weights`."""
    data = path.read_bytes()
    dim, hidden, layers, heads, kv_heads, vocab, context = sizes = struct.unpack("<7i", data[:28])
    kv_dim, head_size = dim * kv_heads // heads, dim // heads
    shapes = {
        "token_embedding": (abs(vocab), dim), "rms_att": (layers, dim), "wq": (layers, dim, dim),
        "wk": (layers, kv_dim, dim), "wv": (layers, kv_dim, dim), "wo": (layers, dim, dim), "rms_ffn": (layers, dim),
        "w1": (layers, hidden, dim), "w2": (layers, dim, hidden), "w3": (layers, hidden, dim), "rms_final": (dim,),
        "freq_real": (context, head_size // 2), "freq_imag": (context, head_size // 2),
    }  # fmt: skip
    numbers, weights, start = np.frombuffer(data, "<f4", offset=28), {}, 0
    for name, shape in shapes.items():
        weights[name] = numbers[start : start + np.prod(shape)].reshape(shape)
        start += np.prod(shape)
    weights["wcls"] = weights["token_embedding"] if vocab > 0 else numbers[start:].reshape(abs(vocab), dim)
    return sizes, weights


def rmsnorm(x, weight):
    return weight * (x * (np.float32(1) / np.sqrt(np.dot(x, x) / np.float32(x.size) + np.float32(1e-5))))


def forward(sizes, weights, caches, token, pos):
    dim, _, layers, heads, kv_heads, _, _ = sizes
    head_size, group = dim // heads, heads // kv_heads
    x = weights["token_embedding"][token].copy()
    for layer in range(layers):
        normed = rmsnorm(x, weights["rms_att"][layer])
        q, k, v = (weights[name][layer] @ normed for name in ("wq", "wk", "wv"))
        for i in range(0, dim, 2):
            angle = np.float32(pos * np.float32(1.0 / 10000.0 ** ((i % head_size) / head_size)))
            cos, sin = np.cos(angle), np.sin(angle)
            for vector in (q, k) if i < k.size else (q,):
                a, b = vector[i], vector[i + 1]
                vector[i], vector[i + 1] = a * cos - b * sin, a * sin + b * cos
        caches[layer].append((k, v))
        out = np.zeros(dim, np.float32)
        for head in range(heads):
            here, there = slice(head * head_size, (head + 1) * head_size), head // group * head_size
            shared = slice(there, there + head_size)
            scores = np.array([q[here] @ k[shared] for k, _ in caches[layer]]) / np.float32(np.sqrt(head_size))
            attention = np.exp(scores - scores.max())
            attention /= attention.sum()
            out[here] = sum(a * v[shared] for a, (_, v) in zip(attention, caches[layer], strict=True))
        x = x + weights["wo"][layer] @ out
        normed = rmsnorm(x, weights["rms_ffn"][layer])
        gate, up = weights["w1"][layer] @ normed, weights["w3"][layer] @ normed
        x = x + weights["w2"][layer] @ (gate * (np.float32(1) / (np.float32(1) + np.exp(-gate))) * up)
    return weights["wcls"] @ rmsnorm(x, weights["rms_final"])


def told(path, tokenizer_path, steps):
    """Return the ids and the text that `./run model.bin -z tokenizer.bin -t 0 -n steps` generates and prints."""
    sizes, weights = read_weights(path)
    pieces, _ = pieces_of(tokenizer_path)
    caches, token, ids, text = [[] for _ in range(sizes[2])], 1, [], b""
    for pos in range(steps):
        after = int(np.argmax(forward(sizes, weights, caches, token, pos)))
        if after == 1:
            break
        piece = pieces[after]
        if token == 1 and piece.startswith(b" "):
            piece = piece[1:]
        text += bytes([int(piece[3:5], 16)]) if piece.startswith(b"<0x") else piece
        ids.append(after)
        token = after
    return ids, text.decode()


def encoded(text, pieces, scores):
    """Return what `encode` of run.c makes of a text, without its start token."""
    ids = {piece: i for i, piece in reversed(list(enumerate(pieces)))}
    tokens = [ids[b" "]] if text else []
    for character in text:
        known = ids.get(character.encode())
        tokens += [known] if known is not None else [byte + 3 for byte in character.encode()]
    while True:
        best, place = -1e10, None
        for i in range(len(tokens) - 1):
            join = ids.get(pieces[tokens[i]] + pieces[tokens[i + 1]])
            if join is not None and scores[join] > best:
                best, place, found = scores[join], i, join
        if place is None:
            return tokens
        tokens[place : place + 2] = [found]


def story_model():
    return open_llama2c(data_file("stories260K.bin"))


@pytest.mark.data("stories260K.bin", "tok512.bin")
def test_stories260k_tells_the_story_that_llama2c_prints_from_weights_that_stay_in_the_file():
    model = load(data_file("stories260K.bin"))
    ids, text = told(data_file("stories260K.bin"), data_file("tok512.bin"), BY_HAND)
    answer = model.generate("", max_new_tokens=STEPS, temperature=0)
    assert answer.ids[:BY_HAND] == tuple(ids)
    assert answer.text.startswith(text)
    assert text.startswith("Once upon a time")
    assert hashlib.sha256(answer.text.encode()).hexdigest() == PRINTED
    assert len(answer.ids) == STEPS
    assert "".join(model.stream("", max_new_tokens=BY_HAND, temperature=0)) == text

    loaded = story_model()
    check_same(loaded.params, loaded.model.specs())
    assert loaded.family == "llama"
    assert all(not array.flags.owndata and not array.flags.writeable for array in flatten(loaded.params).values())


@pytest.mark.data("stories260K.bin", "tok512.bin")
@given(st.text(alphabet="Once upon a time, Lily's dög ran 123!\n日😀<s>", max_size=60))
def test_text_is_cut_as_llama2c_cuts_it(text):
    path = data_file("tok512.bin")
    tokenizer = read_vocabulary(path)
    ids = tokenizer.encode(text)
    assert ids.tolist() == encoded(text, *pieces_of(path))
    assert tokenizer.decode(ids) == text
    stream = StreamDecoder(tokenizer)
    assert "".join([stream.push(i) for i in ids] + [stream.finish()]) == text


@pytest.mark.data("stories260K.bin", "tok512.bin")
def test_the_tokenizer_beside_the_model_is_found(tmp_path):
    beside = tmp_path / "model.bin"
    beside.write_bytes(data_file("stories260K.bin").read_bytes())
    assert open_llama2c(beside).tokenizer is None
    (tmp_path / "tok512.bin").write_bytes(data_file("tok512.bin").read_bytes())
    assert open_llama2c(beside).tokenizer.size == 512


def model_file(tmp_path, sizes=(16, 24, 2, 4, 2, -7, 20), *, extra=0):
    """Write random weights; the vocabulary is negative where the head has a matrix of its own."""
    width, hidden, layers, heads, kv_heads, vocab, context = sizes
    shared = width // heads * kv_heads
    tables = abs(vocab) * width * (2 if vocab < 0 else 1)
    blocks = layers * (2 * width + 2 * width * width + 2 * shared * width + 3 * hidden * width)
    count = tables + blocks + width + context * (width // heads)
    numbers = np.random.default_rng(0).normal(0, 0.3, count + extra).astype("<f4")
    path = tmp_path / "small.bin"
    path.write_bytes(struct.pack("<7i", *sizes) + numbers.tobytes())
    return path


@pytest.mark.parametrize("vocab", [7, -7])
def test_logits_equal_those_of_run_c(tmp_path, vocab):
    path = model_file(tmp_path, (16, 24, 2, 4, 2, vocab, 20))
    loaded = open_llama2c(path)
    assert loaded.config.tied_head == (vocab > 0)
    check_same(loaded.params, loaded.model.specs())
    sizes, weights = read_weights(path)
    tokens, caches = np.array([1, 3, 6, 2, 2, 0]), [[], []]
    expected = np.stack([forward(sizes, weights, caches, token, pos) for pos, token in enumerate(tokens)])
    logits, _ = loaded.model.forward(loaded.params, tokens)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no model of llama2.c"),
        (bytes(20), "no model of llama2.c"),
        (bytes(28), "sizes would be"),
        (struct.pack("<7i", *[1 << 30] * 7), "sizes would be"),
        (struct.pack("<7i", -16, 24, 2, 4, 2, 7, 20), "sizes would be"),
        (struct.pack("<7i", 16, 24, 2, 3, 3, 7, 20), "not divisible by 3 heads"),
        (struct.pack("<7i", 16, 24, 2, 4, 2, 7, 20), "has 28 bytes, but its sizes ask for"),
        (struct.pack("<7i", 1 << 23, 1 << 23, 1 << 23, 1, 1, 1 << 23, 1 << 23), "has 28 bytes, but its sizes ask for"),
        (struct.pack("<7i", 0x616B3432, 1, 16, 24, 2, 4, 2), "a later format"),
    ],
)
def test_files_that_are_no_models_are_refused(tmp_path, content, message):
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=message):
        open_llama2c(path)


def test_a_file_with_more_than_the_model_is_refused_and_numbers_are_of_the_type_asked_for(tmp_path):
    with pytest.raises(WeightsError, match="bytes, but its sizes ask for"):
        open_llama2c(model_file(tmp_path, extra=1))
    with pytest.raises(WeightsError, match="cannot be read"):
        open_llama2c(tmp_path / "missing.bin")
    path = model_file(tmp_path)
    twice = open_llama2c(path, dtype=np.float64)
    assert {array.dtype for array in flatten(twice.params).values()} == {np.dtype(np.float64)}
    np.testing.assert_array_equal(twice.params["head"]["w"], open_llama2c(path).params["head"]["w"])


LATER = [f"<0x{byte:02X}>".encode() for byte in range(256)]


def vocabulary_file(tmp_path, *pieces, cut=0, spelled=LATER):
    usual = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *spelled, b" "]
    every = [*usual, *(piece.encode() for piece in pieces)]
    entries = [struct.pack("<fi", -i, len(piece)) + piece for i, piece in enumerate(every)]
    path = tmp_path / "t.bin"
    content = struct.pack("<i", 9) + b"".join(entries)
    path.write_bytes(content[: len(content) - cut])
    return path


def test_special_tokens_have_names_and_are_never_typed(tmp_path):
    tokenizer = read_vocabulary(vocabulary_file(tmp_path, "\n", "<", "s", ">", "<s", ">\n", "\n<s"))
    assert tokenizer.specials == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert 1 not in tokenizer.encode("\n<s>\n")
    assert tokenizer.decode([1, 2]) == "<s></s>"


@pytest.mark.parametrize("older", [lambda byte: bytes([byte]), lambda byte: chr(byte).encode()])
def test_older_files_that_hold_the_bytes_themselves_are_the_same_tokenizer(tmp_path, older):
    later = read_vocabulary(vocabulary_file(tmp_path, "A", "é", "Aé"))
    found = read_vocabulary(vocabulary_file(tmp_path, "A", "é", "Aé", spelled=[older(b) for b in range(256)]))
    assert found == later
    assert found.encode("Aé日").tolist() == later.encode("Aé日").tolist()
    with pytest.raises(WeightsError, match=r"no tokenizer.bin of llama2.c"):
        read_vocabulary(vocabulary_file(tmp_path, spelled=[older(b ^ 1) for b in range(256)]))


def test_damaged_tokenizers_are_refused(tmp_path):
    with pytest.raises(WeightsError, match=r"no tokenizer.bin of llama2.c"):
        read_vocabulary(vocabulary_file(tmp_path, "ab", cut=1))
    with pytest.raises(WeightsError, match="cannot be read"):
        read_vocabulary(tmp_path / "missing.bin")
    path = vocabulary_file(tmp_path, "ab")
    path.write_bytes(path.read_bytes() + struct.pack("<fi", 0, -5))
    with pytest.raises(WeightsError, match="length of -5"):
        read_vocabulary(path)
