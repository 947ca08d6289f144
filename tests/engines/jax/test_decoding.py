"""The kernels that read one more token on a GPU: interpreted here, they read what the blocks read."""

import numpy as np
import pytest

from glassformer.core.dispatch import use_engine
from glassformer.engines.jax import cached_attention, decoding, programs
from glassformer.engines.jax.reader import JaxReader
from glassformer.generation import Sampling
from glassformer.layers import FeedForward
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
