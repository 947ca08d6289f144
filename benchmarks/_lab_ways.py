"""Right solutions of labs that look different from ours: other formulas, einsum, loops, in-place inside."""

WAYS = [
    ("softmax", """
        def softmax(x):
            x = x - x.max(axis=-1, keepdims=True)
            return np.exp(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))
    """),
    ("softmax", """
        def softmax(x):
            e = np.exp(x - x.max(axis=2)[:, :, None])
            e /= np.einsum("bts->bt", e)[..., None]
            return e
    """),
    ("softmax_backward", """
        def softmax_backward(dy, y):
            return dy * y - y * np.einsum("bts,bts->bt", dy, y)[..., None]
    """),
    ("softmax_backward", """
        def softmax_backward(dy, y):
            g = dy * y
            return g - y * g.sum(axis=2, keepdims=True)
    """),
    ("softmax_backward", """
        def softmax_backward(dy, y):
            out = np.zeros_like(dy)
            for b in range(y.shape[0]):
                for t in range(y.shape[1]):
                    out[b, t] = (np.diag(y[b, t]) - np.outer(y[b, t], y[b, t])) @ dy[b, t]
            return out
    """),
    ("causal_mask", """
        def causal_mask(queries, keys):
            before = np.arange(keys)[None, :] - np.arange(queries)[:, None]
            return before <= keys - queries
    """),
    ("attention", """
        def attention(q, k, v, mask):
            s = np.einsum("htc,hsc->hts", q * q.shape[-1] ** -0.5, k)
            s = np.where(mask[None], s, -np.inf)
            e = np.exp(s - s.max(axis=-1, keepdims=True))
            return np.einsum("hts,hsc->htc", e, v) / e.sum(axis=-1)[..., None]
    """),
    ("attention", """
        def attention(q, k, v, mask):
            out = []
            for head in range(len(q)):
                s = q[head] @ k[head].T / math.sqrt(q.shape[-1])
                e = np.where(mask, np.exp(s - np.where(mask, s, -np.inf).max(axis=-1, keepdims=True)), 0)
                out.append(e / e.sum(axis=-1, keepdims=True) @ v[head])
            return np.array(out)
    """),
    ("attention_backward", """
        def attention_backward(dy, q, k, v, weights):
            c = q.shape[-1] ** -0.5
            dv = np.einsum("hts,htc->hsc", weights, dy)
            da = np.einsum("htc,hsc->hts", dy, v)
            ds = weights * da - weights * np.einsum("hts,hts->ht", weights, da)[..., None]
            return c * np.einsum("hts,hsc->htc", ds, k), c * np.einsum("hts,htc->hsc", ds, q), dv
    """),
    ("attention_backward", """
        def attention_backward(dy, q, k, v, weights):
            y = weights @ v
            da = dy @ v.swapaxes(1, 2)
            ds = weights * (da - (dy * y).sum(axis=-1, keepdims=True)) / math.sqrt(q.shape[-1])
            return ds @ k, ds.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ dy
    """),
    ("multi_head", """
        def multi_head(x, wq, wk, wv, wo, heads, mask):
            B, T, D = x.shape
            C = D // heads
            out = np.zeros_like(x)
            for h in range(heads):
                cut = slice(h * C, (h + 1) * C)
                q, k, v = x @ wq[:, cut], x @ wk[:, cut], x @ wv[:, cut]
                s = np.where(mask, q @ k.swapaxes(1, 2) / math.sqrt(C), -np.inf)
                e = np.exp(s - s.max(axis=-1, keepdims=True))
                out = out + e / e.sum(axis=-1, keepdims=True) @ v @ wo[cut]
            return out
    """),
    ("sinusoidal", """
        def sinusoidal(length, width):
            out = np.zeros((length, width))
            for p in range(length):
                for i in range(width // 2):
                    angle = p * math.exp(-math.log(10000.0) * 2 * i / width)
                    out[p, 2 * i] = math.sin(angle)
                    out[p, 2 * i + 1] = math.cos(angle)
            return out
    """),
    ("rotary", """
        def rotary(x):
            half = x.shape[-1] // 2
            angle = np.arange(x.shape[1])[:, None] / 10000.0 ** (np.arange(half) / half)
            turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
            cos = np.concatenate([np.cos(angle), np.cos(angle)], axis=-1)
            sin = np.concatenate([np.sin(angle), np.sin(angle)], axis=-1)
            return x * cos + turned * sin
    """),
    ("rotary", """
        def rotary(x):
            half = x.shape[-1] // 2
            z = x[..., :half] + 1j * x[..., half:]
            z = z * np.exp(1j * np.outer(np.arange(x.shape[1]), 10000.0 ** (-np.arange(half) / half)))
            return np.concatenate([z.real, z.imag], axis=-1)
    """),
    ("rotary_backward", """
        def rotary_backward(dy, cos, sin):
            half = dy.shape[-1] // 2
            dx = np.empty_like(dy)
            dx[..., :half] = dy[..., :half] * cos + dy[..., half:] * sin
            dx[..., half:] = dy[..., half:] * cos - dy[..., :half] * sin
            return dx
    """),
    ("layer_norm", """
        def layer_norm(x, gamma, beta):
            m = x.mean(axis=-1, keepdims=True)
            s = np.sqrt((x * x).mean(axis=-1, keepdims=True) - m * m + 1e-5)
            return (x - m) / s * gamma + beta
    """),
    ("layer_norm", """
        def layer_norm(x, gamma, beta):
            D = x.shape[-1]
            c = x - x.sum(axis=2)[..., None] / D
            v = np.einsum("btd,btd->bt", c, c)[..., None] / D
            return c * (v + 1e-5) ** -0.5 * gamma + beta
    """),
    ("layer_norm_backward", """
        def layer_norm_backward(dy, x_hat, rstd, gamma):
            D = dy.shape[-1]
            g = dy * gamma
            a = g.sum(axis=-1, keepdims=True)
            b = (g * x_hat).sum(axis=-1, keepdims=True)
            return rstd / D * (D * g - a - x_hat * b), (dy * x_hat).sum(axis=0).sum(axis=0), dy.sum(axis=0).sum(axis=0)
    """),
    ("layer_norm_backward", """
        def layer_norm_backward(dy, x_hat, rstd, gamma):
            D = dy.shape[-1]
            project = np.eye(D) - 1 / D - x_hat[..., :, None] * x_hat[..., None, :] / D
            dx = rstd * np.einsum("btij,btj->bti", project, dy * gamma)
            return dx, np.einsum("btd,btd->d", dy, x_hat), np.einsum("btd->d", dy)
    """),
    ("gelu", """
        def gelu(x):
            u = math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)
            return x / (1 + np.exp(-2 * np.clip(u, -300, 300)))
    """),
    ("gelu_backward", """
        def gelu_backward(dy, x):
            c = math.sqrt(2 / math.pi)
            s = 1 / (1 + np.exp(-2 * c * (x + 0.044715 * x * x * x)))
            slope = 2 * c * (1 + 0.134145 * x * x)
            return dy * (s + x * s * (1 - s) * slope)
    """),
    ("cross_entropy", """
        def cross_entropy(logits, targets):
            kept = targets >= 0
            x, t = logits[kept], targets[kept]
            top = x.max(axis=-1)
            total = top + np.log(np.exp(x - top[:, None]).sum(axis=-1))
            return (total - x[np.arange(len(t)), t]).mean()
    """),
    ("cross_entropy_backward", """
        def cross_entropy_backward(logits, targets):
            e = np.exp(logits - logits.max(axis=-1, keepdims=True))
            p = e / e.sum(axis=-1, keepdims=True)
            p[np.arange(len(p)), targets] -= 1
            return np.where(targets[:, None] >= 0, p, 0) / (targets >= 0).sum()
    """),
    ("adam", """
        def adam(w, dw, m, v, step, lr):
            m = m + 0.1 * (dw - m)
            v = v + 0.001 * (dw * dw - v)
            rate = lr * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            return w - rate * m / (np.sqrt(v) + 1e-8 * math.sqrt(1 - 0.999**step)), m, v
    """),
    ("kv_cache", """
        def kv_cache(x, keys, values, wq, wk, wv):
            keys = np.append(keys, (x @ wk).reshape(len(x), 1, -1), axis=1)
            values = np.append(values, (x @ wv).reshape(len(x), 1, -1), axis=1)
            s = (keys @ (x @ wq)[:, :, None])[:, :, 0] / math.sqrt(wq.shape[1])
            e = np.exp(s - s.max(axis=1, keepdims=True))
            return ((e / e.sum(axis=1, keepdims=True))[:, None, :] @ values)[:, 0], keys, values
    """),
    ("top_p", """
        def top_p(logits, p):
            w = np.exp(logits - logits.max())
            w = w / w.sum()
            likelier = (w[None, :] > w[:, None]) @ w
            w = np.where(likelier < p, w, 0)
            return w / w.sum()
    """),
    ("logit_lens", """
        def logit_lens(stream, gamma, beta, unembed):
            c = stream - stream.mean(axis=2, keepdims=True)
            n = c / np.sqrt((c * c).mean(axis=2, keepdims=True) + 1e-5) * gamma + beta
            z = np.einsum("ltd,vd->ltv", n, unembed)
            z = z - z.max(axis=2, keepdims=True)
            z = z - np.log(np.exp(z).sum(axis=2, keepdims=True))
            return z, z.argmax(2)
    """),
]  # fmt: skip
"""A lab, and a solution of it."""
