"""Attention by cuDNN: what its kernels take goes to JAX's own pair of primitives, whichever arguments they have.

These tests need no GPU; on one, `benchmarks/gpu_train.py --only check` compares what it computes.
"""

import inspect
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer import ops
from glassformer.core.execution import Execution
from glassformer.core.tree import flatten, tree_map
from glassformer.engines.jax import attention as attention_jax
from glassformer.engines.mesh.sharding import stack_blocks, unstack_blocks
from glassformer.models import Batch, build
from glassformer.ops.mask import Pattern
from one_gpu import assert_near, half, quickly, struct
from oracles import require

CAUSAL = Pattern(causal=True)
Q, K = (2, 4, 16, 8), (2, 2, 16, 8)


@pytest.mark.parametrize(
    ("change", "fused"),
    [
        ({}, True),
        ({"pattern": Pattern()}, True),
        ({"pattern": Pattern(causal=True, window=3)}, True),
        ({"dtype": "float16"}, True),
        ({"rate": 0.1}, False),
        ({"bias": np.zeros((4, 16, 16))}, False),
        ({"mask": np.ones((16, 16), bool)}, False),
        ({"dtype": "float32"}, False),
        ({"pattern": Pattern(window=3)}, False),
        ({"pattern": Pattern(causal=True, stride=4)}, False),
        ({"pattern": Pattern(causal=True, prefix=2)}, False),
        ({"q": (2, 4, 5, 8)}, False),
        ({"q": (2, 4, 16, 12), "k": (2, 2, 16, 12)}, False),
        ({"q": (2, 4, 16, 136), "k": (2, 2, 16, 136)}, False),
        ({"q": (2, 4, 1, 8), "k": (2, 2, 1, 8)}, False),
        ({"q": (4, 16, 8), "k": (2, 16, 8)}, False),
    ],
)
def test_cudnn_gets_what_its_kernels_cover(on_gpu, change, fused):
    case = {"q": Q, "k": K, "dtype": "bfloat16", "bias": None, "mask": None, "pattern": CAUSAL, "rate": 0.0} | change
    q, k = struct(case["q"], case["dtype"]), struct(case["k"], case["dtype"])
    assert attention_jax.is_for_cudnn(q, k, k, case["bias"], case["mask"], case["pattern"], case["rate"]) == fused


@pytest.mark.parametrize("tile", [None, 4])
@pytest.mark.parametrize("pattern", [Pattern(), CAUSAL, Pattern(causal=True, window=3)], ids=str)
def test_attention_goes_to_the_pair_where_it_can(interpreted, pattern, tile):
    rng = np.random.default_rng(0)
    (q, exact_q), (k, exact_k), (v, exact_v), (dy, exact_dy) = (half(rng, *shape) for shape in (Q, K, K, Q))
    attend, attend_back, tiles = ops.attention, ops.attention_backward, {}
    if tile is not None:
        attend, attend_back, tiles = ops.attention_tiled, ops.attention_tiled_backward, {"tile": tile}

    def both(q, k, v, dy):
        y, saved = attend(q, k, v, pattern=pattern, scale=0.3, **tiles)
        return y, saved, attend_back(dy, saved, pattern=pattern, scale=0.3, **tiles)

    y, saved, found = quickly(both, q, k, v, dy)
    want, record = ops.attention(exact_q, exact_k, exact_v, pattern=pattern, scale=0.3)
    assert y.dtype == q.dtype
    assert_near(y, want, 0.02)
    if tile is None:
        # The record has the same names; the weights come when they are asked for.
        assert isinstance(saved.weights, attention_jax.CudnnWeights)
        assert saved._fields == record._fields
        assert saved.weights.shape == record.weights.shape
        assert saved.weights.dtype == q.dtype
        assert_near(saved.weights.compute(), record.weights, 0.02)
    assert found[3] is None
    for have, expected in zip(found, ops.attention_backward(exact_dy, record, pattern=pattern, scale=0.3), strict=True):
        if expected is not None:
            assert have.dtype == q.dtype
            assert_near(have, expected, 0.03)


def test_with_dropout_weights_are_kept(interpreted):
    jax = require("jax")
    q, k, v = (half(np.random.default_rng(0), *shape)[0] for shape in (Q, K, K))
    dropped = partial(ops.attention, key=ops.new_key(0), rate=0.5, pattern=CAUSAL)
    assert isinstance(jax.eval_shape(dropped, q, k, v)[1].weights, jax.ShapeDtypeStruct)


def test_the_pair_is_cudnns_own_on_a_gpu(jax):
    """Lowering for a GPU needs none: the program calls both of cuDNN's kernels, each once."""
    q, k = jax.ShapeDtypeStruct(Q, "bfloat16"), jax.ShapeDtypeStruct(K, "bfloat16")
    given = {"pattern": Pattern(causal=True, window=5), "scale": 0.125}

    def both(q, k, v, dy):
        y, log_sum = attention_jax.cudnn_forward(q, k, v, **given)
        return y, log_sum, attention_jax.cudnn_backward(dy, q, k, v, y, log_sum, **given)

    y, log_sum, grads = jax.eval_shape(both, q, k, k, q)
    assert (y.shape, log_sum.shape, log_sum.dtype) == (Q, Q[:3], np.float32)
    assert [(x.shape, str(x.dtype)) for x in grads] == [(shape, "bfloat16") for shape in (Q, K, K)]
    text = jax.jit(both).trace(q, k, k, q).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("__cudnn$fmhaSoftmax(") == 1
    assert text.count("__cudnn$fmhaSoftmaxBackward(") == 1
    assert text.count(r"\22sliding_window_length\22: 5") == 2
    assert "CAUSAL" in text


PRIMITIVE, IMPLEMENTATION = "_dot_product_attention_bwd_p_wrapper", "_dot_product_attention_bwd_impl"


@pytest.fixture
def home(on_gpu):
    """JAX's own module with the pair, which is asked anew what it has."""
    attention_jax.cudnn_pair.cache_clear()
    yield __import__("jax._src.cudnn.fused_attention_stablehlo", fromlist=["MaskType"])
    attention_jax.cudnn_pair.cache_clear()


@pytest.mark.parametrize(
    ("name", "other", "reason"),
    [
        (PRIMITIVE, None, f"has no attribute '{PRIMITIVE}'"),
        (IMPLEMENTATION, lambda query, key, value, unheard_of: None, r"\(it wants unheard_of\)"),
        (PRIMITIVE, SimpleNamespace(bind=lambda query: None), "unexpected keyword argument 'scale'"),
        (PRIMITIVE, SimpleNamespace(bind=lambda *arrays, **_: arrays[3:6]), "gradients have another shape"),
    ],
)
def test_a_version_of_jax_without_the_pair_keeps_the_weights_and_says_so_once(home, name, other, reason, caplog):
    q = struct(Q, "bfloat16")
    with pytest.MonkeyPatch.context() as patch:
        if other is None:
            patch.delattr(home, name)
        else:
            patch.setattr(home, name, other)
        for _ in range(2):
            assert not attention_jax.is_for_cudnn(q, q, q, None, None, CAUSAL, 0.0)
            assert attention_jax.cudnn_pair() is None
    (record,) = caplog.records
    assert re.search(f"cuDNN's attention cannot be used .*{reason}.* keeps all weights", record.getMessage())
    attention_jax.cudnn_pair.cache_clear()
    assert attention_jax.is_for_cudnn(q, q, q, None, None, CAUSAL, 0.0)


def test_arguments_that_a_later_version_of_jax_adds_get_their_defaults(home, monkeypatch):
    """Version 0.12 added a function of the scores, and any number of arrays for it."""
    bound = []
    for name in ("fwd", "bwd"):
        own = inspect.signature(getattr(home, f"_dot_product_attention_{name}_impl"))
        more = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY) for one in ("later", "later_arrays")]
        later = _callable(own.replace(parameters=[*own.parameters.values(), *more]))
        monkeypatch.setattr(home, f"_dot_product_attention_{name}_impl", later)
        primitive = getattr(home, f"_dot_product_attention_{name}_p_wrapper")

        def bind(*arrays, own=primitive.bind, later, **settings):
            bound.append((len(arrays), later, settings.keys()))
            return own(*arrays, **settings)

        monkeypatch.setattr(home, f"_dot_product_attention_{name}_p_wrapper", SimpleNamespace(bind=bind))
    own = inspect.signature(home.dot_product_attention)
    defaults = {"later": "as before", "later_arrays": ()}
    more = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, default=x) for one, x in defaults.items()]
    later = _callable(own.replace(parameters=[*own.parameters.values(), *more]))
    monkeypatch.setattr(home, "dot_product_attention", later)
    assert attention_jax.cudnn_pair() is not None
    assert [(count, later) for count, later, _ in bound] == [(10, "as before"), (13, "as before")]
    assert not any("later_arrays" in names for *_, names in bound)


def _callable(signature):
    """A function that says that it has this signature."""

    def function(*arguments, **settings):
        raise AssertionError("nobody calls it")

    function.__signature__ = signature
    return function


@pytest.mark.parametrize("remat", [False, True])
def test_weights_that_nobody_kept_go_through_loops_and_programs(interpreted, remat):
    jax = require("jax")
    config = {"vocab": 48, "width": 32, "heads": 4, "context": 16, "kv_heads": 2, "feed_forward": 64}
    config |= {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile
    config["layers"] = 2 if remat else 1  # a list takes as long to compile as it is deep
    plain = build("gpt2", **config)
    params = tree_map(lambda x: np.asarray(x, np.float32), plain.init(0))
    tokens = np.random.default_rng(0).integers(0, 48, (2, 16))
    batch = Batch(tokens, np.roll(tokens, -1, axis=1))
    model = build("gpt2", Execution(precision="bfloat16", remat=remat), **config)

    def both(params, batch):
        looped = model.loss_and_grads(stack_blocks(params), batch)
        looped = looped[0], unstack_blocks(looped[1])
        if remat:
            return None, looped
        return model.forward(params, batch.tokens)[1], looped, model.loss_and_grads(params, batch)

    saved, *found = quickly(both, params, batch)
    loss, grads = plain.loss_and_grads(params, batch)
    for value, own in found:
        assert float(value) == pytest.approx(float(loss), rel=0.01)
        for name, x in flatten(own).items():
            assert x.dtype == np.float32
            assert_near(x, flatten(grads)[name], 0.1)
    if not remat:
        attention = saved["blocks"][0]["attention"]
        assert isinstance(attention.attend.weights, attention_jax.CudnnWeights)
        _, record = plain.forward(params, tokens)
        assert_near(attention.weights, record["blocks"][0]["attention"].weights, 0.05)
        assert flatten(saved).keys() == flatten(record).keys()
        assert jax.tree.structure(found[0]) == jax.tree.structure(found[1])
