"""Planted mistakes with their names, and other right ways to solve a lab."""

MISTAKES = [
    ("softmax", "np.sum(e, axis=-1, keepdims=True)", "np.sum(e, axis=-2, keepdims=True)", "wrong axis"),
    ("softmax", " - np.max(x, axis=-1, keepdims=True)", "", "not finite"),
    ("softmax_backward", "(dy - np.sum(dy * y, axis=-1, keepdims=True))", "dy", "missing term"),
    ("softmax_backward", "dy - np.sum", "dy + np.sum", "wrong sign"),
    ("softmax_backward", "np.sum(dy * y, axis=-1, keepdims=True)", "np.sum(dy * y)", "wrong axis"),
    ("softmax_backward", "return y", "dy -= 1\n    return y", "wrote to input"),
    ("softmax_backward", "return y", "return y.astype(np.float32).astype(float)", "wrong dtype"),
    ("causal_mask", ">=", ">", "off by one"),
    ("causal_mask", ">=", "<=", "mask"),
    ("causal_mask", "np.arange(keys - queries, keys)", "np.arange(queries)", "off by one"),
    ("attention", " / np.sqrt(q.shape[-1])", "", "wrong factor"),
    ("attention", "np.where(mask, scores, -np.inf)", "scores", "mask"),
    ("attention_backward", "dscores = dscores / np.sqrt(q.shape[-1])", "", "wrong factor"),
    ("attention_backward", "return dq, dk, dv", "return dk, dq, dv", "swapped"),
    ("attention_backward", "np.swapaxes(weights, -1, -2) @ dy", "weights @ dy", "transposed"),
    ("layer_norm_backward", " - shift", "", "missing term"),
    ("layer_norm_backward", "- stretch", "+ stretch", "wrong sign"),
    ("layer_norm_backward", "np.sum(dy * x_hat, axis=(0, 1))", "dy * x_hat", "not summed"),
    ("cross_entropy_backward", "np.sum(counts)", "len(targets)", "wrong factor"),
    ("cross_entropy_backward", "np.where(counts, p - onehot, 0.0)", "(p - onehot)", "mask"),
    ("multi_head", "np.swapaxes(mixed, 1, 2)", "mixed", "wrong axis"),
    ("multi_head", "np.sqrt(D // heads)", "np.sqrt(D)", "wrong factor"),
    ("multi_head_backward", " + dk @ wk.T", "", "missing term"),
    ("multi_head_backward", "dq @ wq.T", "dq @ wq", "transposed"),
    ("sinusoidal", "10000.0", "1000.0", "wrong factor"),
    ("sinusoidal", "np.arange(length)", "np.arange(1, length + 1)", "off by one"),
    ("rotary", "b * cos + a * sin", "b * cos - a * sin", "wrong sign"),
    ("rotary_backward", "da * cos + db * sin", "da * cos - db * sin", "wrong sign"),
    ("rotary_backward", "db * cos - da * sin", "db * cos", "missing term"),
    ("layer_norm", " + beta", "", "missing term"),
    ("layer_norm", " + 1e-5", "", "missing term"),
    ("gelu", "(1 + np.tanh(u))", "np.tanh(u)", "missing term"),
    ("gelu_backward", "3 * 0.044715", "0.044715", "wrong factor"),
    ("gelu_backward", "0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner", "0.5 * (1 + t)", "missing term"),
    ("block", "a = x + multi_head", "a = multi_head", "missing term"),
    ("block", "again = layer_norm(a, p", "again = layer_norm(x, p", "wrong variable"),
    ("block_backward", "da = dy + through", "da = through", "missing term"),
    ("cross_entropy", "np.where(counts, picked, 0.0)", "picked", "mask"),
    ("cross_entropy", "return -np.sum", "return np.sum", "wrong sign"),
    ("adam", "v_hat = v / (1 - 0.999**step)", "v_hat = v", "missing term"),
    ("adam", "dw**2", "dw", "wrong factor"),
    ("adam", "(np.sqrt(v_hat) + 1e-8)", "np.sqrt(v_hat + 1e-8)", "wrong factor"),
    ("adam", " + 1e-8", "", "missing term"),
    ("training_loop", "w = w - lr * dw", "w -= lr * dw", "wrote to input"),
    ("training_loop", "w = w - lr * dw", "w = w + lr * dw", "wrong sign"),
    ("kv_cache", " / np.sqrt(q.shape[-1])", "", "wrong factor"),
    ("top_p", "keep = total - probabilities[order] < p", "keep = total < p", "off by one"),
    ("beam_search", "score + table[sequence[-1], token]", "table[sequence[-1], token]", "missing term"),
    ("logit_lens", "normed @ unembed.T", "stream @ unembed.T", "missing function"),
    ("induction_head", " - base", "", "missing term"),
]
"""Of a lab's solution: what stands there, the mistake instead, and its name."""

OTHER_WAYS = [
    ("softmax", """
        def softmax(x):
            return 1 / np.exp(x[..., None, :] - x[..., :, None]).sum(-1)
    """),
    ("softmax", """
        def softmax(x):
            x = x - x.max(-1, keepdims=True)
            return np.exp(x - np.log(np.exp(x).sum(-1, keepdims=True)))
    """),
    ("softmax", """
        def softmax(x):
            e = np.exp(x - x.max(axis=2)[:, :, None])
            e /= np.einsum("bts->bt", e)[..., None]
            return e
    """),
    ("softmax", """
        def softmax(x):
            y = np.empty_like(x)
            for i in np.ndindex(x.shape[:-1]):
                e = [math.exp(v - max(x[i])) for v in x[i]]
                y[i] = np.array(e) / sum(e)
            return y
    """),
    ("softmax_backward", """
        def softmax_backward(dy, y):
            return dy * y - y * np.einsum("bts,bts->bt", dy, y)[..., None]
    """),
    ("softmax_backward", """
        def softmax_backward(dy, y):
            jacobian = np.eye(y.shape[-1], dtype=y.dtype) * y[..., None] - y[..., None] * y[..., None, :]
            return (jacobian @ dy[..., None])[..., 0]
    """),
    ("softmax_backward", """
        def softmax_backward(dy, y):
            d = dy.copy()
            d -= (d * y).sum(2, keepdims=True)
            d *= y
            return d
    """),
    ("softmax_backward", """
        def softmax_backward(dy, y):
            d = dy - dy.mean()
            return y * (d - (d * y).sum(-1)[..., None])
    """),
    ("causal_mask", """
        def causal_mask(queries, keys):
            return np.tril(np.ones((queries, keys), dtype=bool), keys - queries)
    """),
    ("causal_mask", """
        def causal_mask(queries, keys):
            return np.array([[s <= t for s in range(keys)] for t in range(keys)])[keys - queries :]
    """),
    ("attention", """
        def attention(q, k, v, mask):
            s = np.einsum("htc,hsc->hts", q / math.sqrt(q.shape[2]), k)
            s[:, ~mask] = -np.inf
            s -= s.max(-1, keepdims=True)
            e = np.exp(s)
            return np.einsum("hts,hsc->htc", e, v) / e.sum(-1)[..., None]
    """),
    ("layer_norm_backward", """
        def layer_norm_backward(dy, x_hat, rstd, gamma):
            D = dy.shape[-1]
            g = dy * gamma
            dx = rstd / D * (D * g - g.sum(-1, keepdims=True) - x_hat * (g * x_hat).sum(-1, keepdims=True))
            return [dx, np.einsum("btd,btd->d", dy, x_hat), dy.reshape(-1, D).sum(0)]
    """),
    ("cross_entropy_backward", """
        def cross_entropy_backward(logits, targets):
            out = np.zeros_like(logits)
            rows = np.flatnonzero(targets != -1)
            for n in rows:
                e = np.exp(logits[n] - logits[n].max())
                out[n] = e / e.sum()
                out[n, targets[n]] -= 1
            return out / len(rows)
    """),
]  # fmt: skip
"""Right solutions that look different."""
