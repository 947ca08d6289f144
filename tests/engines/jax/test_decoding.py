"""Writing on a device: the kernels that read one more token, the cache of fixed size, and the choice of tokens."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import like
from glassformer.engines.jax import cached_attention, decoding, programs
from glassformer.engines.jax.programs import FixedCache, State, chosen, drawing_of
from glassformer.engines.jax.reader import JaxReader
from glassformer.generation import Sampling, distribution
from glassformer.generation.sampling import choose
from glassformer.layers import FeedForward
from glassformer.ops import CAUSAL, FULL, Pattern
from one_gpu import interpret
from sequences import model_of, prompts_of
from sequences import written as written_by

LLAMA = {"positions": "rotary", "norm": "rms", "gated": True, "activation": "silu", "kv_heads": 1}
CASES = {
    "learned positions": {},
    "as Llama": LLAMA,
    "interleaved pairs in a window": {"positions": "rotary", "rotary_pairing": "interleaved", "window": 5},
    "no biases": {"attention_bias": False, "feed_forward_bias": False, "norm_bias": False, "activation": "relu"},
}
SIZES = {"width": 48, "heads": 3, "layers": 2, "vocab": 17, "context": 24}  # no power of two but the channels of a head


@pytest.fixture
def blocks_read(jax, numpy_engine, monkeypatch):
    """Let the kernels be interpreted, in several runs of rows and of keys; return the blocks that they have read."""
    interpret(monkeypatch)
    for module in (cached_attention, decoding):
        monkeypatch.setattr(module, "on_one_gpu", lambda: True)
    monkeypatch.setattr(decoding, "_ROWS", 32)
    monkeypatch.setattr(decoding, "_PROGRAMS", 4)
    monkeypatch.setattr(cached_attention, "_KEYS", 8)
    monkeypatch.setattr(cached_attention, "_TOKENS", 16)
    seen, written = [], decoding.read_block

    def counted(block, *others):
        seen.append(block)
        return written(block, *others)

    monkeypatch.setattr(decoding, "read_block", counted)
    for program in (programs.begin, programs.step, programs.write):  # traced anew, and not left to others
        monkeypatch.setattr(program, "made", (None, None))
    return seen


def logits_of(model, params, prompt, tokens):
    """The logits after a prompt and after each of these tokens, read one by one."""
    with use_engine("jax"):
        reader = JaxReader(model, params, [prompt], None, room=len(tokens) + 1)
        found = [reader.logits[0]]
        for token in tokens:
            reader.read(np.array([token]))
            found.append(reader.logits[0])
    return np.array(found)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_tokens_are_read_as_numpy_reads_them(blocks_read, settings):
    model, params = model_of(dtype=np.float32, **{**SIZES, **settings})
    prompt, tokens = prompts_of(5, 14)
    found = logits_of(model, params, prompt, tokens)
    expected = model.forward(params, np.array([prompt + tokens]))[0][0, len(prompt) - 1 :]
    assert len(blocks_read) == model.config.layers  # traced once
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_several_sequences_attend_by_the_kernel(jax, blocks_read, monkeypatch):
    calls = []
    for name in ("attended_prompt", "attended"):
        written = getattr(cached_attention, name)
        monkeypatch.setattr(cached_attention, name, lambda *given, own=written: calls.append(own) or own(*given))
    model, params = model_of(dtype=np.float32, **{**SIZES, **LLAMA, "window": 7})
    prompts = prompts_of(9, 3, 6)
    settings = {"max_new_tokens": 8, "sampling": Sampling(temperature=0)}
    with use_engine("jax"):
        found = written_by(model, params, prompts, **settings)
    assert found == written_by(model, params, prompts, **settings)
    assert [own.__name__ for own in calls] == ["attended_prompt", "attended_prompt", "attended", "attended"]
    assert not blocks_read


def test_half_precision_keeps_its_digits(blocks_read, jax):
    model, params = model_of(dtype=np.float32, **{**SIZES, **LLAMA})
    prompt, tokens = prompts_of(5, 6)
    half = jax.tree.map(lambda x: jax.numpy.asarray(x, "bfloat16"), params)
    found = logits_of(model, half, prompt, tokens)
    expected = model.forward(params, np.array([prompt + tokens]))[0][0, len(prompt) - 1 :]
    assert len(blocks_read) == model.config.layers
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize(
    "settings", [{"norm_position": "post"}, {"stride": 3}, {"positions": "alibi"}, {"activation": "gelu"}], ids=str
)
def test_what_the_kernels_do_not_have_is_read_as_written(blocks_read, settings):
    model, params = model_of(dtype=np.float32, **{**SIZES, **settings})
    prompt, tokens = prompts_of(5, 3)
    found = logits_of(model, params, prompt, tokens)
    expected = model.forward(params, np.array([prompt + tokens]))[0][0, len(prompt) - 1 :]
    assert not blocks_read
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_an_edited_layer_is_read_as_edited(blocks_read, monkeypatch):
    model, params = model_of(dtype=np.float32, **SIZES)
    prompt, tokens = prompts_of(5, 2)
    written = FeedForward.forward

    def doubled(self, params, x):
        y, saved = written(self, params, x)
        return 2 * y, saved

    monkeypatch.setattr(FeedForward, "forward", doubled)
    found = logits_of(model, params, prompt, tokens)
    expected = model.forward(params, np.array([prompt + tokens]))[0][0, len(prompt) - 1 :]
    assert not blocks_read
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


PLACES = 8


def cache_of(jnp, *, layers=1, padding=(0, 3), seen=4, shape=(4, PLACES, 4)):
    keys, values = ([jnp.zeros((len(padding), *shape)) for _ in range(layers)] for _ in range(2))
    return FixedCache(State(keys, values, None, None, jnp.asarray(padding), jnp.asarray(seen)))


@pytest.mark.parametrize(
    "pattern",
    [FULL, CAUSAL, Pattern(causal=True, window=3), Pattern(causal=True, stride=2), Pattern(window=2)],
    ids=str,
)
def test_new_tokens_see_what_the_pattern_allows_of_what_is_filled(jax, pattern):
    kept = cache_of(jax.numpy).blocks[0].attention
    allowed = np.asarray(kept.allowed(pattern, 2))
    rows, columns = np.array([4, 5]), np.arange(PLACES)
    assert allowed.tolist() == (pattern.tile(rows, columns) & (columns <= rows[:, None])).tolist()
    assert not allowed[:, 6:].any()


def test_keys_and_values_are_written_at_the_next_places_and_padding_is_masked(jax, rng):
    kept = cache_of(jax.numpy).blocks[0].attention
    k, v = rng.standard_normal((2, 2, 4, 2, 4))
    all_k, all_v = kept.append(jax.numpy.asarray(k), jax.numpy.asarray(v))
    assert int(kept.seen) == 6
    for whole, new in ((all_k, k), (all_v, v)):
        assert whole.shape == (2, 4, PLACES, 4)
        assert np.array_equal(whole[:, :, 4:6], new)
        assert not np.delete(np.asarray(whole), [4, 5], axis=2).any()

    cache = cache_of(jax.numpy, seen=2)
    assert np.asarray(cache.key_mask(1))[:, 0].tolist() == [[True] * 8, [False] * 3 + [True] * 5]
    assert np.asarray(cache.rows(3)).tolist() == [2, 3, 4]
    assert np.asarray(cache.positions(3, context=4)).tolist() == [[2, 3, 3], [0, 0, 1]]


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "relative", "alibi"])
def test_tables_give_positions_that_are_not_known_yet_what_formulas_give_known_ones(jax, positions, rng):
    model, params = model_of(positions=positions, layers=1)
    params = like(params, jax.numpy)
    tokens = rng.integers(0, 17, (2, 3))

    def read(seen):
        cache = cache_of(jax.numpy, padding=(0, 1), seen=seen)
        return model.read(params, jax.numpy.asarray(tokens), cache, positions=cache.positions(3, 24))

    assert_close(jax.jit(read)(4), read(4))


ROWS, VOCAB = 64, 37
SETTINGS = [
    {"temperature": 0},
    {},
    {"temperature": 0.3},
    {"top_k": 1},
    {"top_k": 5, "temperature": 2.0},
    {"top_k": 1000},
    {"top_p": 0.05},
    {"top_p": 0.9},
    {"top_p": 0.999999},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"top_k": 9, "top_p": 0.7, "min_p": 0.05, "temperature": 1.3},
    {"top_k": 9, "temperature": 5e-324},
]


class Told:
    """A generator that says the number it was told."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.fixture(scope="module")
def on_device(jax):
    compiled = jax.jit(chosen, static_argnames="way")

    def choose_there(logits, uniforms, sampling):
        way, drawing = drawing_of(sampling, logits.shape[-1])
        return np.asarray(compiled(logits, uniforms, drawing, way=way))

    return choose_there


def drawn_logits(kind, rng):
    if kind == "equal":  # many of the same: the lower id counts as the likelier
        return rng.integers(0, 4, (ROWS, VOCAB)).astype(np.float64)
    return rng.standard_normal((ROWS, VOCAB)) * 3


@pytest.mark.parametrize("kind", ["spread", "equal"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_device_chooses_what_the_host_chooses(on_device, rng, settings, kind):
    sampling, logits = Sampling(**settings), drawn_logits(kind, rng)
    uniforms = rng.random(ROWS)
    uniforms[:2] = 0.0, np.nextafter(1.0, 0.0)
    expected = choose(logits, None, sampling, [Told(number) for number in uniforms])
    assert on_device(logits, uniforms, sampling).tolist() == expected.tolist()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_in_float32_nothing_is_drawn_that_is_left_out_and_hardly_anything_else(on_device, rng, settings):
    sampling, logits = Sampling(**settings), drawn_logits("spread", rng).astype(np.float32)
    uniforms = rng.random(ROWS).astype(np.float32)
    uniforms[:2] = 0.0, 1.0  # one may be rounded up to
    tokens = on_device(logits, uniforms, sampling)
    p = distribution(logits, None, sampling)
    assert (p[np.arange(ROWS), tokens] > 0).all()
    expected = choose(logits, None, sampling, [Told(number) for number in uniforms.astype(np.float64)])
    assert (tokens == expected).mean() > 0.95


def test_forbidden_tokens_are_never_drawn_and_settings_beyond_float32_mean_what_they_say(on_device, rng, jax):
    logits = rng.standard_normal((ROWS, VOCAB))
    logits[:, rng.permutation(VOCAB)[:20]] = -np.inf
    for sampling in (Sampling(temperature=5.0), Sampling(temperature=5.0, top_k=30, top_p=0.99)):
        tokens = on_device(logits, rng.random(ROWS), sampling)
        assert np.isfinite(logits[np.arange(ROWS), tokens]).all()

    logits = rng.standard_normal((ROWS, VOCAB)).astype(np.float32)
    logits[:, -3:] = -np.inf
    uniforms = rng.random(ROWS).astype(np.float32)
    with jax.enable_x64(False):
        assert on_device(logits, uniforms, Sampling(top_p=1e-60)).tolist() == logits.argmax(axis=-1).tolist()
        drawn = on_device(logits, uniforms, Sampling(temperature=1e60))
    assert drawn.max() < VOCAB - 3
    assert len({*drawn.tolist()}) > VOCAB // 2
