"""A sparse autoencoder on the stream of SmolLM2: its backward by hand, its proof, and what its features read.

f = relu((x − c) w + b)     features (N, F), most of them zero
y = f v + c                 x again (N, D), as a sum of few rows of v
loss = mean ‖y − x‖² + sparsity · mean Σ f
"""

import numpy as np

import glassformer as gf
from glassformer.interpret import activations, token_labels


def encode(params, x):
    return gf.ops.relu(gf.ops.linear(x - params["c"], params["w"], params["b"])[0])[0]


def loss(w, b, v, c, x, *, sparsity):
    h, reading = gf.ops.linear(x - c, w, b)
    f, bending = gf.ops.relu(h)
    y, writing = gf.ops.linear(f, v, c)
    error = y - x
    return ((error * error).sum() + sparsity * f.sum()) / len(x), (reading, bending, writing, error)


def loss_backward(dloss, saved, *, sparsity):
    reading, bending, writing, error = saved
    share = dloss / len(error)
    df, dv, dc = gf.ops.linear_backward(2 * share * error, writing)
    dh = gf.ops.relu_backward(df + share * sparsity, bending)
    dx, dw, db = gf.ops.linear_backward(dh, reading)
    return dw, db, dv, dc - dx.sum(axis=0)  # c is added to y and taken from x


def train(x, *, features=384, sparsity=4.0, steps=200, batch=128, lr=3e-3, seed=0):
    """Return the parameters of an autoencoder of vectors x (N, D)."""
    rng, optimizer = np.random.default_rng(seed), gf.training.Adam()
    v = rng.standard_normal((features, x.shape[1])).astype(x.dtype)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    params = {"w": v.T.copy(), "b": np.zeros(features, x.dtype), "v": v, "c": x.mean(axis=0)}
    state = optimizer.init(params)
    for _ in range(steps):
        _, saved = loss(*params.values(), x[rng.integers(0, len(x), batch)], sparsity=sparsity)
        grads = dict(zip(params, loss_backward(1.0, saved, sparsity=sparsity), strict=True))
        params, state = optimizer.update(params, grads, state, lr=lr)
        params["v"] /= np.linalg.norm(params["v"], axis=1, keepdims=True)  # or f would shrink while v grows
    return params


def prove(seed=0):
    """Compare every entry of every gradient with the complex step."""
    rng = np.random.default_rng(seed)
    w, b, v, c, x = (rng.standard_normal(shape) for shape in [(4, 6), 6, (6, 4), 4, (5, 4)])
    case = gf.proofs.OpCase("sparse autoencoder", loss, loss_backward, (w, b, v, c), (x,), {"sparsity": 0.3})
    return gf.proofs.prove_case(case)


def vectors(model, texts, name, out):
    """Return the vectors of all tokens but the first of each text, of one length, and the words before each token."""
    found = activations(model, texts, [name], out=out)
    inner = found.positions > 0  # the first token has a vector of its own, many times as long
    x, label = found[name][inner], token_labels(model.tokenizer)
    x = x - x.mean(axis=0)
    words = [label(int(token)) for token in found.tokens]
    starts = np.maximum(np.arange(len(words)) - found.positions, np.arange(len(words)) - 5)
    contexts = [f"{''.join(words[starts[n] : n])}[{words[n]}]" for n in np.flatnonzero(inner)]
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True)), contexts


def report(params, x, contexts, *, features=6, tokens=3):
    """Print how good the autoencoder is, and the tokens that excite its strongest features most."""
    f = encode(params, x)
    error = f @ params["v"] + params["c"] - x
    explained = 1 - np.sum(error**2) / np.sum((x - x.mean(axis=0)) ** 2)
    print(f"explained variance {explained:.2f}, L0 {np.mean(np.sum(f > 0, axis=1)):.1f} of {f.shape[1]} features")
    rare = np.mean(f > 0, axis=0) < 0.1  # what is active for every tenth token says little
    for feature in np.argsort(-f.max(axis=0) * rare)[:features]:
        print(f"feature {feature:3}: {' | '.join(contexts[n] for n in np.argsort(-f[:, feature])[:tokens])}")


def sentences(count, longest=160):
    """Return some sentences of the prose about Python that every Python carries."""
    found = (" ".join(sentence.split()) for sentence in gf.data.pydoc_topics().split(". "))
    return [sentence for sentence in found if 40 < len(sentence) < longest][:count]


if __name__ == "__main__":
    print(prove())
    model = gf.load("smollm2")
    x, contexts = vectors(model, sentences(60), "blocks.4", "stream.npz")
    report(train(x), x, contexts)
