"""Bugs of the ops, as diffs; `mutations.py` says how they are written."""

OP_BUGS = """\
# ops/arrange.py
attention: heads cut without swapping the axes | split_heads
-xp.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -3, -2)
+x.reshape(*x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads)
encoder: the CLS vector gets no gradient | prepend
-sum_rows(dy[..., 0, :])
+0 * sum_rows(dy[..., 0, :])
encoder: the CLS vector learns from the first sequence only | prepend
-sum_rows(dy[..., 0, :])
+dy.reshape(-1, *dy.shape[-2:])[0, 0]
# ops/norm.py
layer norm: gamma outside the sums | layer_norm
-(dx_hat - average(dx_hat) - x_hat * average(dx_hat * x_hat)) * rstd
+gamma * (dy - average(dy) - x_hat * average(dy * x_hat)) * rstd
layer norm: the mean of the gradient not subtracted | layer_norm
-(dx_hat - average(dx_hat) - x_hat
+(dx_hat - x_hat
layer norm: the part along x̂ not subtracted | layer_norm
- - x_hat * average(dx_hat * x_hat)) * rstd
+) * rstd
layer norm: the variance of a sample (D − 1) | layer_norm
-average(centered * centered)
+average(centered * centered) * x.shape[-1] / (x.shape[-1] - 1)
layer norm: eps outside the root | tests/ops/test_norm.py::test_eps_stands_inside_the_root
-inverse_root(average(centered * centered), eps=eps)
+1 / (namespace(x).sqrt(average(centered * centered)) + eps)
layer norm: gradient of gamma averaged | layer_norm
-sum_rows(dy)
-    dgamma = sum_rows(dy * x_hat)
+sum_rows(dy)
+    dgamma = sum_rows(dy * x_hat) / (dy.size / dy.shape[-1])
RMS norm: the part along x̂ not subtracted | rms_norm
-(dx_hat - x_hat * average(dx_hat * x_hat)) * rrms
+dx_hat * rrms
# ops/softmax.py
softmax: only the diagonal of its Jacobian | softmax
-y * (dy - namespace(y).sum(dy * y, axis=-1, keepdims=True))
+y * (1 - y) * dy
log-softmax: no sum over the row | log_softmax
-* xp.sum(dy, axis=-1, keepdims=True)
+* dy
softmax: the mask applied after it | tests/ops/test_softmax.py::test_masked_rows_sum_to_one_or_to_nothing
-    if mask is not None:
-        shifted = xp.where(mask, shifted, -xp.inf)
-    e = xp.exp(shifted)
-    return e, xp.sum(e, axis=-1, keepdims=True)
+    e = xp.exp(shifted)
+    return e if mask is None else xp.where(mask, e, 0), xp.sum(e, axis=-1, keepdims=True)
# ops/attention.py
attention: the mask applied after softmax | tests/ops/test_attention.py::test_padding_the_keys_changes_nothing
-weights, _ = softmax(scores, mask=mask)
+weights = softmax(scores)[0] * (1 if mask is None else mask)
attention: 1/√C missing in the backward | attention
-grouped(dscores * scale, k)
+grouped(dscores, k)
attention: 1/√C missing in both directions
| tests/ops/test_attention.py::test_the_default_scale_keeps_the_variance_of_the_scores
-return 1 / math.sqrt(q.shape[-1])
+return 1.0
attention: 1/C instead of 1/√C | tests/ops/test_attention.py::test_the_default_scale_keeps_the_variance_of_the_scores
-return 1 / math.sqrt(q.shape[-1])
+return 1 / q.shape[-1]
attention: 1/√C also in the gradient of the bias | attention
-unbroadcast(dscores, tuple(bias.shape))
+unbroadcast(dscores * scale, tuple(bias.shape))
attention: the bias ignored | attention
-return scores + bias
+return scores
attention: values take gradients from weights before dropout | attention
-mixing = weights if keep is None else dropped(weights, keep, rate=rate)
+mixing = weights
attention: weights that were dropped get gradients | attention
-        dweights = dropped(dweights, keep, rate=rate)
+        dweights = dweights / (1 - rate)
grouped queries: keys take gradients from one head of the group | attention
-xp.matrix_transpose(dscores) @ grouped(q, k)
+xp.matrix_transpose(dscores[..., : q.shape[-2], :]) @ grouped(q, k)[..., : q.shape[-2], :]
grouped queries: the heads of a group are not neighbors | attention
-    return x.reshape(*x.shape[:-3], heads, x.shape[-3] // heads * x.shape[-2], x.shape[-1])
+    x = namespace(x).swapaxes(x.reshape(*x.shape[:-3], -1, heads, *x.shape[-2:]), -4, -3)
+    return x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])
# ops/attention_tiled.py
tiles: the mixture not rescaled when the maximum moves | attention_tiled
-mixture = mixture * rescale +
+mixture = mixture +
tiles: the maximum missing in the logarithm of the sum | attention_tiled
-largest + xp.log(safe)
+xp.log(safe)
tiles: Σ dy instead of Σ dy · y | attention_tiled
-xp.sum(dy * saved.y, axis=-1
+xp.sum(dy, axis=-1
tiles: only the last row of tiles gives keys gradients | attention_tiled
-dk_tile, dv_tile = dk_tile + dk_part, dv_tile + dv_part
+dk_tile, dv_tile = dk_part, dv_part
tiles: dropout counts its rows anew in each tile | tests/ops/test_attention_tiled.py::test_tiled_equals_dense[numpy]
-numbers = part.rows[..., rows.start : rows.stop]
+numbers = part.rows[..., : len(rows)]
tiles: queries taken for the first of the keys | tests/ops/test_attention_tiled.py::test_tiled_equals_dense[numpy]
-offset = saved.k.shape[-2] - saved.q.shape[-2]
+offset = 0
tiles: the sum not rescaled when the maximum moves | attention_tiled
-total = total * rescale +
+total = total +
# ops/attention_strided.py
strided: the parts joined by equal weights | attention_tiled
-y1 * xp.exp(sum1 - log_sum) + y2 * xp.exp(sum2 - log_sum)
+0.5 * (y1 + y2)
strided: every query counts itself twice
| tests/ops/test_attention_strided.py::test_every_pair_of_a_strided_pattern_is_in_exactly_one_part
-& (np.asarray(rows)[:, None] != np.asarray(columns))
+
strided: zeros added at the end are keys
| tests/ops/test_attention_tiled.py::test_strided_attention_of_any_length_equals_dense[2-False-numpy]
-mask is None and length % stride == 0
+mask is None
# ops/mask.py
tiles: one too many skipped at the edge of the window
| tests/ops/test_mask.py::test_a_tile_is_a_cut_of_the_whole_and_reaches_is_never_false_where_something_is_seen
-nearest >= self.window:
+nearest >= self.window - 1:
tiles: one too many skipped on the diagonal
| tests/ops/test_mask.py::test_a_tile_is_a_cut_of_the_whole_and_reaches_is_never_false_where_something_is_seen
-columns.start < max(rows.stop, self.prefix)
+columns.start < max(rows.stop - 1, self.prefix)
causal mask: the next token visible | tests/ops/test_mask.py::test_causal_masks
-(distance >= 0) |
+(distance >= -1) |
causal mask: no token sees itself | tests/ops/test_mask.py::test_every_query_sees_itself
-(distance >= 0) |
+(distance > 0) |
window: one key too wide | tests/ops/test_mask.py::test_window_masks
-abs(distance) < self.window
+abs(distance) <= self.window
# ops/linear.py
linear: bias summed over the first axis only | linear
-else rows.sum(axis=0)
+else dy.sum(axis=0)
linear: bias averaged | linear
-else rows.sum(axis=0)
+else rows.mean(axis=0)
# ops/activation.py
ReLU: slope from the gradient's sign | relu
-where(x > 0, dy,
+where(dy > 0, dy,
GELU: density without the 2 in √(2π) | gelu
-1 / math.sqrt(2 * math.pi)
+1 / math.sqrt(math.pi)
GELU by tanh: no inner derivative of the cube | gelu_tanh
-(1 + 3 * _TANH_CUBIC * x * x)
+(1 + _TANH_CUBIC * x * x)
GELU by tanh: another constant | tests/ops/test_activation.py::test_the_two_forms_of_gelu_differ_a_little
-_TANH_CUBIC = 0.044715
+_TANH_CUBIC = 0.44715
SiLU: the slope of the logistic alone | silu
-(s * (1 + x * (1 - s)))
+(s * (1 - s))
gated: gate and up swapped in the backward | gated
-return backward(dy * saved.up, inner), dy * opened
+return dy * opened, backward(dy * saved.up, inner)
# ops/dropout.py
dropout: 1/(1 − rate) missing in the backward | dropout
-    return dropped(dy, keep, rate=rate)
+    return dy * keep
dropout: survivors scaled down | tests/ops/test_dropout.py::test_the_mean_stays
-x * (1 / (1 - rate))
+x * (1 - rate)
# ops/embedding.py
embedding: the scale missing in the backward | embedding
-return dtable if scale == 1 else dtable * scale
+return dtable
embedding: += instead of scatter-add | embedding
-np.add.at(table, ids.reshape(-1), rows.reshape(-1, shape[-1]))
+table[ids.reshape(-1)] += rows.reshape(-1, shape[-1])
mean pooling: divided by the length, padding included | tests/ops/test_embedding.py::test_padding_changes_nothing
-total = xp.sum(counted, axis=-2, keepdims=True)
+total = xp.sum(xp.ones_like(counted), axis=-2, keepdims=True)
mean pooling: every position gets 1/T back | mean_pool
-dy[..., None, :] * saved.share
+dy[..., None, :] * (0 * saved.share + 1 / saved.share.shape[-2])
# ops/position.py
rotary: turned further instead of back | rotary
-saved.cos, -saved.sin, pairing
+saved.cos, saved.sin, pairing
rotary: halves in the backward whatever the pairing | rotary
-saved.cos, -saved.sin, pairing
+saved.cos, -saved.sin, "halves"
rotary: frequencies half as far apart | tests/ops/test_position.py::test_angles_follow_the_formula
--np.arange(0, turning, 2) / turning
+-np.arange(turning // 2) / turning
sinusoids: sine and cosine of different angles | tests/ops/test_position.py::test_sinusoids_follow_the_formula
-(feature // 2 * 2) / width
+feature / width
ALiBi: distant keys favored | tests/ops/test_position.py::test_alibi_lowers_scores_with_the_distance
-return -alibi_slopes(heads)
+return alibi_slopes(heads)
relative positions: a bucket off by one | tests/ops/test_position.py::test_buckets_equal_an_independent_derivation
-far = exact + (ratio
+far = exact + 1 + (ratio
relative positions: a token in the bucket of what follows
| tests/ops/test_position.py::test_buckets_equal_an_independent_derivation
-np.where(after > 0,
+np.where(after >= 0,
relative positions: heads and queries mixed up in the backward | relative_bias
-namespace(dy).moveaxis(dy, 0, -1)
+dy.reshape(*dy.shape[1:], dy.shape[0])
# ops/loss.py
loss: smoothing forgotten in the backward | cross_entropy
-share = counted[..., None] * (smoothing / size)
+share = 0 * counted[..., None] * (smoothing / size)
loss: ignored targets have gradients | cross_entropy
-xp.where(counted[..., None] > 0, p * total_a - a, xp.zeros((), dtype=p.dtype))
+p * unit - a
loss: smoothing counts ignored targets | cross_entropy
-xp.where(counted > 0, xp.mean(spread, axis=-1), xp.zeros((), dtype=log_p.dtype))
+xp.mean(spread, axis=-1)
loss: ignored targets counted in the mean | tests/ops/test_loss.py::test_ignored_positions_change_nothing
-total = xp.sum(weight)
-
+total = xp.sum(xp.ones_like(weight))
+
loss: class weights missing in the mean | tests/ops/test_loss.py::test_cross_entropy_equals_pytorch
-total = xp.sum(weight)
-
+total = xp.sum(counted)
+
loss: smoothing spread over V − 1 classes | cross_entropy
-xp.mean(spread, axis=-1)
+xp.sum(spread, axis=-1) / (spread.shape[-1] - 1)
"""
