"""Bugs of kernels and of several cores, as diffs; `mutations.py` says how they are written."""

KERNEL_BUGS = """\
# engines/cpu/softmax.py
kernel of softmax: only its diagonal | softmax
-y[s] * (dy[s] - along) * scale
+y[s] * dy[s] * scale
kernel of softmax: the mask applied after it | attention
-row[s] = score if mask[b, h, t, s] else x.dtype.type(-np.inf)
+row[s] = score
kernel of softmax: a row with nothing left is not a number
| tests/engines/cpu/test_limits.py::test_rows_without_anything_to_attend_to_are_zeros
-    if total != 0:
-        share
+    if True:
+        share
# engines/cpu/norm.py
kernel of layer norm: the part along x̂ not subtracted | layer_norm
-drow[i] = (dout[i] * gamma[i] - total - (row[i] - mean) * rstd * along) * rstd
+drow[i] = (dout[i] * gamma[i] - total) * rstd
kernel of RMS norm: gamma's gradient of the last row alone | rms_norm
-dgamma[i] += dout[i] * (row[i] - mean) * rstd
+dgamma[i] = dout[i] * (row[i] - mean) * rstd
# engines/cpu/activation.py
kernel of GELU: the derivative of Φ missing | gelu
-(normal_cdf(x) + x * real(_DENSITY) * exp(real(-0.5) * x * x))
+normal_cdf(x)
kernel of SiLU: the slope of the logistic alone | silu
-(s * (real(1) + x * (real(1) - s)))
+s
kernel of GELU: a wrong digit in float32 | tests/engines/cpu/test_contract.py::test_kernels_equal_their_ops[gelu]
-f(9.441064261e-02)
+f(9.431064261e-02)
# engines/cpu/loss.py
kernel of the loss: smoothing not in its gradient | cross_entropy
-(exp(row[v]) - share)
+exp(row[v])
kernel of the loss: ignored targets counted | tests/ops/test_loss.py::test_ignored_positions_change_nothing
-            losses[n] = 0
-            continue
+            losses[n] = 0
+            counted += 1
+            continue
# engines/cpu/embedding.py
kernel of the embedding: repeated ids overwrite each other | embedding
-drow[d] += dout[d] * real(scale)
+drow[d] = dout[d] * real(scale)
# engines/cpu/position.py
kernel of rotations: not undone in the backward | rotary
-_turned(dy, saved.cos, saved.sin, -1.0, pairing)
+_turned(dy, saved.cos, saved.sin, 1.0, pairing)
# engines/cpu/linear.py
kernel of linear: bias averaged | linear
-dout.sum(axis=0)
+dout.mean(axis=0)
# engines/cpu/dropout.py
kernel of dropout: another mask in the second row
| tests/engines/cpu/test_contract.py::test_kernels_equal_their_ops[dropout]
-np.uint32(np.uint32(n) ^ key[0])
+np.uint32(np.uint32(2 * n) ^ key[0])
# engines/cpu/attention/dense.py
kernel of attention: the bias's gradient scaled | attention
-*spans(FULL, T, S), 1.0)
+*spans(FULL, T, S), scale)
# engines/cpu/attention/strategies.py
kernel of attention: keys take gradients from the last block of queries alone
| tests/engines/cpu/test_contract.py::test_long_sequences_go_by_blocks_with_the_same_result
-dscore, S, query, D, real(1), dkey, D)
+dscore, S, query, D, real(0), dkey, D)
kernel of attention in registers: gradients of the scores not centered
| tests/engines/cpu/attention/test_strategies.py::test_a_few_keys_are_attended_to_as_the_op_says[vectors]
-shares[t, s] * (dscores[t, s] - along) * real(scale)
+shares[t, s] * dscores[t, s] * real(scale)
# engines/cpu/attention/tiles.py
kernel of tiles: the mixture not rescaled when the maximum moves
| tests/engines/cpu/attention/test_tiled.py::test_tiles_of_their_own_size_equal_dense[float64-causal]
-_multiply(y[b, at + step * t, h], rescale)
+_multiply(y[b, at + step * t, h], 1.0)
kernel of tiles: the total not rescaled when the maximum moves
| tests/engines/cpu/attention/test_tiled.py::test_tiles_of_their_own_size_equal_dense[float64-causal]
-total[t] = total[t] * rescale + added
+total[t] = total[t] + added
kernel of tiles: keys take gradients from the last tile of queries alone
| tests/engines/cpu/attention/test_tiled.py::test_tiles_of_their_own_size_equal_dense[float64-causal]
-dtile, width, query, q_row, one, dkey, k_row)
+dtile, width, query, q_row, zero, dkey, k_row)
kernel of tiles: a key beyond the last one is seen
| tests/engines/cpu/attention/test_tiled.py::test_tiles_of_their_own_size_equal_dense[float64-causal]
-max(min(problem.last[t], keys, high) - low, left)
+max(min(problem.last[t] + 1, keys, high) - low, left)
# engines/cpu/attention/tiled.py
tiles on several cores: two write the gradients of the same queries
| tests/engines/cpu/attention/test_tiled.py::test_a_single_head_uses_all_cores_in_shares_of_nearly_equal_work
-return [False, *same]
+return [False for _ in shares]
# engines/cpu/attention/layer.py
kernel of a layer: keys take the gradient of queries away | Attention
-real(1), dx, dws[1], dbs[1])
+real(0), dx, dws[1], dbs[1])
# engines/cpu/block.py
kernel of a block: no gradient around attention | Block
-    _add_to(dx, dy)
-
+
# engines/cpu/quantized_rows.py
kernel of blocks: the shift of 8 not made up for
| tests/engines/cpu/test_quantized.py::test_blocks_are_turned_into_their_values[Q4_1]
-np.float32(8 if code == Q4_1 else 0)
+np.float32(0)
# engines/cpu/parts.py
kernel of float16: half of the factor of its bits
| tests/engines/cpu/test_quantized.py::test_the_kernel_quantized_product_equals_its_op[F16]
-sums * np.float32(2.0**28)
+sums * np.float32(2.0**27)
# engines/cpu/update.py
kernel of all arrays: norms and biases decayed as well
| tests/engines/cpu/test_all_arrays.py::test_adam_moves_every_array_as_it_does_one
-decay if decays[j] else (0.0, 1.0)
+decay
# training/loop.py
training: the state before an evaluation overwritten
| tests/engines/cpu/test_trainer.py::test_a_step_before_an_evaluation_leaves_the_state_before_alone
-overwrite=not evaluates
+overwrite=True
# engines/cpu/update.py
kernel of Adam: eps inside the root
| tests/engines/cpu/test_contract.py::test_kernels_without_a_gradient_equal_their_ops[adam_update]
-(np.sqrt(s) / real(root) + real(eps))
+(np.sqrt(s + real(eps)) / real(root))
# blas.py
threads: BLAS left with one thread
| tests/test_blas.py::test_blas_has_one_thread_inside_and_as_many_as_before_afterwards
-        use(number)
+        use(1)
# engines/cpu/trainer.py
shards: weighed by sequences instead of targets
| tests/engines/cpu/test_shards.py::test_shards_give_the_loss_and_the_gradients_of_the_whole
-[count_targets(part) for part in parts]
+[len(part.tokens) for part in parts]
shards: all drop by the same key | tests/engines/cpu/test_shards.py::test_every_shard_drops_by_a_key_of_its_own
-ops.fold_key(key, number)
+key
"""
