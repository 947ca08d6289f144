"""A sparse autoencoder of the vectors inside SmolLM2: its backward by hand, its proof, and what its features read.

f = relu((x − c) w + b)     features (N, F), most of them zero
y = f v + c                 x again (N, D), as a sum of few rows of v
loss = mean ‖y − x‖² + sparsity · mean Σ f
"""

import numpy as np

import glassformer as gf
from glassformer.interpret import activations


def loss(w, b, v, c, x, *, sparsity):
    h, reading = gf.ops.linear(x - c, w, b)
    f, bending = gf.ops.relu(h)
    y, writing = gf.ops.linear(f, v, c)
    return (((y - x) ** 2).sum() + sparsity * f.sum()) / len(x), (reading, bending, writing, y - x)


def loss_backward(dloss, saved, *, sparsity):
    reading, bending, writing, error = saved
    share = dloss / len(error)
    df, dv, dc = gf.ops.linear_backward(2 * share * error, writing)
    dx, dw, db = gf.ops.linear_backward(gf.ops.relu_backward(df + share * sparsity, bending), reading)
    return dw, db, dv, dc - dx.sum(axis=0)  # c is added to y and taken from x


# The proof: every entry of every gradient, compared with the complex step.
rng = np.random.default_rng(0)
w, b, v, c, x = (rng.standard_normal(shape) for shape in [(4, 6), 6, (6, 4), 4, (5, 4)])
print(gf.proofs.prove_case(gf.proofs.OpCase("loss", loss, loss_backward, (w, b, v, c), (x,), {"sparsity": 0.3})))

# The data: the vectors of all tokens but the first, whose own is many times as long; centered, and of one length.
model, texts = gf.load("smollm2"), [" ".join(text.split()) for text in gf.data.pydoc_topics().split(". ")]
found = activations(model, [text for text in texts if 40 < len(text) < 160][:80], ["blocks.4"], out="stream.npz")
x, tokens = found["blocks.4"][found.positions > 0], found.tokens[found.positions > 0]
x, _ = gf.ops.rms_norm(x - x.mean(axis=0), np.ones_like(x[0]))

# The training: 200 steps of Adam.
v = rng.standard_normal((384, x.shape[1])).astype(x.dtype) / np.sqrt(x.shape[1], dtype=x.dtype)
params, adam = {"w": v.T.copy(), "b": np.zeros(384, x.dtype), "v": v, "c": x.mean(axis=0)}, gf.training.Adam()
state = adam.init(params)
for _ in range(200):
    params["v"] /= np.linalg.norm(params["v"], axis=1, keepdims=True)  # or f would shrink while v grows
    _, saved = loss(*params.values(), x[rng.integers(0, len(x), 128)], sparsity=4.0)
    grads = dict(zip(params, loss_backward(1.0, saved, sparsity=4.0), strict=True))
    params, state = adam.update(params, grads, state, lr=3e-3)

# What it found: the tokens that excite its strongest features most, each after the four before it.
_, (*_, writing, error) = loss(*params.values(), x, sparsity=4.0)
f, explained = writing.x, 1 - np.sum(error**2) / np.sum((x - x.mean(axis=0)) ** 2)
print(f"explained variance {explained:.2f}, L0 {np.mean(np.sum(f > 0, axis=1)):.1f} of {f.shape[1]} features")
for feature in np.argsort(-f.max(axis=0) * (np.mean(f > 0, axis=0) < 0.1))[:6]:  # those active at few tokens
    texts = [model.tokenizer.decode(tokens[max(0, n - 4) : n + 1]) for n in np.argsort(-f[:, feature])[:3]]
    print(f"feature {feature:3}: {' | '.join(texts)}")
