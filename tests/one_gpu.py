"""What tests of GPU kernels share: arrays of half precision, and cuDNN's two primitives in plain JAX."""

from functools import partial

import numpy as np

from oracles import require


def half(rng, *shape, scale=1.0, shift=0.0, dtype="bfloat16"):
    """Random numbers in half precision: the array of JAX, and the same numbers in NumPy's float32."""
    x = require("jax").numpy.asarray(rng.standard_normal(shape) * scale + shift, dtype)
    return x, np.asarray(x, np.float32)


def quickly(function, *arrays):
    """Return function(*arrays), compiled; the arrays may be NumPy's."""
    return require("jax").jit(function)(*arrays)


def struct(shape, dtype):
    """What the limits of kernels look at: a traced array, which takes no memory."""
    jax = require("jax")
    seen = []
    jax.eval_shape(lambda x: seen.append(x), jax.ShapeDtypeStruct(shape, dtype))
    return seen[0]


def assert_near(actual, expected, limit=0.01):
    """Compare with a result in float32, relative to its largest number; half precision keeps two digits."""
    actual = np.asarray(actual, np.float32)
    assert actual.shape == np.shape(expected)
    largest = np.abs(expected).max(initial=0)
    assert np.abs(actual - expected).max(initial=0) <= limit * largest


def attend(query, key, value, *unused, is_training, **settings):
    """What cuDNN computes: y (B, T, H, C), and log Σ exp scores (B, H, T)."""
    jnp = require("jax").numpy
    assert is_training
    assert all(x.shape == (0,) for x in unused)
    scores = _scores(jnp, query, key, **settings)
    largest = scores.max(axis=-1, keepdims=True)
    log_sum = largest[..., 0] + jnp.log(jnp.exp(scores - largest).sum(axis=-1))
    weights = jnp.exp(scores - log_sum[..., None])
    y = jnp.einsum("bhts,bshc->bthc", weights, _repeated(jnp, value, query))
    return [y.astype(query.dtype), log_sum]


def attend_backward(query, key, value, *rest, **settings):
    """The gradients of query, key and value, from the sums and the output of `attend`."""
    jnp = require("jax").numpy
    log_sum, y, dy = rest[-3:]
    assert log_sum.dtype == np.float32
    weights = jnp.exp(_scores(jnp, query, key, **settings) - log_sum[..., None])
    wide_dy, wide_y = dy.astype(np.float32), y.astype(np.float32)
    dweights = jnp.einsum("bthc,bshc->bhts", wide_dy, _repeated(jnp, value, query))
    along = jnp.einsum("bthc,bthc->bht", wide_dy, wide_y)[..., None]
    dscores = weights * (dweights - along) * settings["scale"]
    dq = jnp.einsum("bhts,bshc->bthc", dscores, _repeated(jnp, key, query))
    dk = jnp.einsum("bhts,bthc->bshc", dscores, query.astype(np.float32))
    dv = jnp.einsum("bhts,bthc->bshc", weights, wide_dy)
    batch, length, heads, channels = key.shape
    shared = (batch, length, heads, query.shape[2] // heads, channels)
    dk, dv = (x.reshape(shared).sum(axis=3) for x in (dk, dv))
    return [dq.astype(query.dtype), dk.astype(key.dtype), dv.astype(value.dtype)]


def _scores(jnp, query, key, *, scale, mask_type, sliding_window_length, layout, **_):
    assert layout == 0  # (B, T, H, C)
    scores = jnp.einsum("bthc,bshc->bhts", query.astype(np.float32), _repeated(jnp, key, query)) * scale
    distance = np.arange(query.shape[1])[:, None] - np.arange(key.shape[1])
    allowed = np.ones(distance.shape, bool)
    if mask_type.name == "CAUSAL":
        allowed &= distance >= 0
    if sliding_window_length is not None:
        allowed &= distance < sliding_window_length
    return jnp.where(allowed, scores, -np.inf)


def _repeated(jnp, x, query):
    """Keys or values in float32, once for every head of the queries."""
    return jnp.repeat(x.astype(np.float32), query.shape[2] // x.shape[2], axis=2)


def interpret(patch):
    """Let kernels of Pallas be interpreted, on whatever machine."""
    from jax.experimental import pallas

    patch.setattr(pallas, "pallas_call", partial(_interpreted, pallas.pallas_call))


def _interpreted(call, kernel, *, compiler_params, **settings):
    return call(kernel, interpret=True, **settings)
