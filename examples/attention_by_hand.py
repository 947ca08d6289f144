"""Attention as in a lecture: one sequence, no batch, every matrix in view; then the backward pass of the same."""

import numpy as np

import glassformer as gf

rng = np.random.default_rng(0)
T, C = 4, 3
q, k, v = rng.standard_normal((3, T, C)).round(1)

scores = gf.ops.attention_scores(q, k)  # q kᵀ / √C
y, saved = gf.ops.attention(q, k, v, mask=gf.ops.causal_mask(T))
print("scores before the mask\n", scores.round(2))
print("weights: each row sums to one, nothing looks ahead\n", saved.weights.round(2))
print("mixture of values\n", y.round(2))

dy = np.ones_like(y)  # the gradient of the sum of all outputs
dq, dk, dv, _ = gf.ops.attention_backward(dy, saved)
print("dv: how often each value was used\n", dv.round(2))

# The gradient by hand equals the slope measured with a tiny imaginary step.
step = 1e-30
moved = q.astype(complex)
moved[2, 1] += 1j * step
y_moved, _ = gf.ops.attention(moved, k, v, mask=gf.ops.causal_mask(T))
print("dq[2, 1] by hand ", dq[2, 1])
print("dq[2, 1] measured", y_moved.sum().imag / step)

layer = gf.layers.Attention(width=8, heads=2)
params = layer.init(seed=0, dtype=np.float64)
x = rng.standard_normal((T, 8))
out, record = layer.forward(params, x, mask=gf.ops.causal_mask(T))
(dx, _, _), grads = layer.backward(params, record, np.ones_like(out))
print("two heads", record.weights.shape, "gradient of the query matrix", grads["query"]["w"].shape, "of x", dx.shape)
