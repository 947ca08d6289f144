"""Bugs of layers and models, as diffs; `mutations.py` says how they are written."""

MODEL_BUGS = """\
# layers/norm.py
norm layer: its eps ignored | tests/models/test_torch.py::test_the_model_equals_its_twin[decoder (norms), no shift]
-params.get("beta"), eps=self.eps)
+params.get("beta"))
# layers/feed_forward.py
feed-forward: the gate's share of dx lost | FeedForward
-return dx + dx_gate, grads
+return dx, grads
feed-forward: the activation on the wrong half | FeedForward
-ops.gated(gate, up,
+ops.gated(up, gate,
# models/model.py
models: the loss smoothed, its gradient not | decoder (loss)
-cross_entropy_backward(dloss, loss_saved, smoothing=smoothing)
+cross_entropy_backward(dloss, loss_saved)
# layers/attention.py
attention layer: keys made by the matrix of the values | Attention
-k, kept_key = self._heads("key", params, x if own else memory)
+k, kept_key = self._heads("value", params, x if own else memory)
attention layer: keys not turned back | Attention
-            dk = ops.rotary_backward(dk, saved.rotation, pairing=self.pairing)
-
+
attention layer: x gets gradients through the queries alone | Attention
-InputGrads(dx + dseen, None, dbias)
+InputGrads(dx, None, dbias)
attention layer: values give the memory no gradient | Attention
-        dseen = dseen + dvalue
-
+
attention layer: own scale missing in the backward | Attention
-attention_backward(dy, saved, **settings)
+attention_backward(dy, saved, pattern=self.pattern, rate=self.dropout)
# layers/layer.py
stack: the memory gets gradients from one block | Stack
-_sum(later.memory, self.memory)
+self.memory
stack: the relative bias gets gradients from one block | Stack
-_sum(later.bias, self.bias)
+self.bias
# layers/residual.py
block: the residual gradient dropped | Block
-read._replace(x=dx + dh)
+read._replace(x=dh)
block: dropout forgotten in the backward | Block
-dh = ops.dropout_backward(dh, saved[f"{name}_dropout"], rate=self.dropout)
+pass
block: post-norm without the residual | Block
-y, _ = ops.add(x, h)
-        if self.norm_position == "post":
-            y, saved[norm] = self.norm.forward(params[norm], y)
+if self.norm_position == "post":
+            h, saved[norm] = self.norm.forward(params[norm], h)
+        y, _ = ops.add(x, h)
# layers/block.py
block: two sublayers share a dropout mask | tests/models/test_equivalence.py::test_no_two_places_share_a_dropout_mask
-"feed_forward": 2}
+"feed_forward": 0}
block: self- and cross-attention share a dropout mask
| tests/models/test_equivalence.py::test_no_two_places_share_a_dropout_mask
-_WEIGHT_KEYS = {"attention": 3, "cross_attention": 4}
+_WEIGHT_KEYS = {"attention": 3, "cross_attention": 3}
# layers/stack.py
stack: all blocks share a dropout mask | tests/models/test_equivalence.py::test_no_two_places_share_a_dropout_mask
-ops.fold_key(key, number)
+key
stack: the final norm skipped | Stack
-x, saved["final_norm"] = self.final_norm
+_, saved["final_norm"] = self.final_norm
# layers/embedding.py
learned positions: gradients from the first sequence only | InputEmbedding
-else unbroadcast(rows, shape)
+else rows[0]
input: dropout forgotten in the backward | InputEmbedding
-dy = ops.dropout_backward(dy, saved["dropout"], rate=self.dropout)
+pass
input: all tokens in the first segment | tests/models/test_torch.py::test_the_model_equals_its_twin[encoder (BERT)]
-dtype=np.int32) if segments is None else segments
+dtype=np.int32)
# layers/head.py
head: its scale missing in the backward | TokenHead
-        dx = dx if self.scale == 1 else ops.scale_backward(dx, None, factor=self.scale)
-
+
# models/decoder.py
tied table: the head's gradient lost | decoder
-embedding["tokens"]["table"] + read.table
+embedding["tokens"]["table"]
decoder: no causal mask | tests/models/test_equivalence.py::test_a_later_token_never_changes_earlier_logits
-causal=True)
+causal=False)
decoder: padding ignored
| tests/models/test_equivalence.py::test_a_sequence_padded_on_the_left_says_the_same_at_its_own_positions
-mask=key_mask(mask), positions
+mask=None, positions
decoder: given positions do not reach the rotation
| tests/models/test_decoder.py::test_given_positions_leave_the_same_gap_as_a_hidden_token
-mask=key_mask(mask), positions=positions, key=stack_key
+mask=key_mask(mask), key=stack_key
# models/encoder.py
tied table: the lookup's gradient lost | encoder (tokens)
-embedding["tokens"]["table"] + dtable
+dtable
encoder: a causal mask | tests/models/test_equivalence.py::test_every_token_of_an_encoder_sees_every_other
-causal=False)
+causal=True)
encoder: padding pooled with the rest
| tests/models/test_equivalence.py::test_a_padded_batch_is_the_mean_of_its_unpadded_sequences
-ops.mean_pool(x, mask=mask)
+ops.mean_pool(x)
encoder: the CLS vector hidden like padding
| tests/models/test_equivalence.py::test_a_padded_batch_is_the_mean_of_its_unpadded_sequences
-xp.ones((*mask.shape[:-1], 1), dtype=bool)
+xp.zeros((*mask.shape[:-1], 1), dtype=bool)
# models/encoder_decoder.py
shared table: the source's gradient lost | encoder-decoder (embeddings)
-tokens["table"] + source.pop("tokens")["table"]
+tokens["table"] + 0 * source.pop("tokens")["table"]
encoder-decoder: the encoder gets no gradient | encoder-decoder
-saved["encoder"], below.memory)
+saved["encoder"], 0 * below.memory)
encoder-decoder: padding of the source ignored by the decoder
| tests/models/test_equivalence.py::test_the_source_padding_is_hidden_from_both_stacks
-memory_mask=key_mask(source_mask)
+memory_mask=None
encoder-decoder: both stacks share dropout masks
| tests/models/test_equivalence.py::test_no_two_places_share_a_dropout_mask
-key=keys[3]
+key=keys[1]
encoder-decoder: padding of the source ignored by the encoder
| tests/models/test_equivalence.py::test_the_source_padding_is_hidden_from_both_stacks
-x, mask=key_mask(mask), key=keys[1]
+x, key=keys[1]
# models/building.py
models: pre-norm and post-norm swapped | tests/models/test_torch.py::test_the_model_equals_its_twin[decoder]
-norm_position=config.norm_position,
+norm_position="post" if config.norm_position == "pre" and config.block == "residual" else "pre",
models: embedding scaled by D instead of √D
| tests/models/test_torch.py::test_the_model_equals_its_twin[encoder-decoder (original)]
-math.sqrt(config.width) if config.embedding_scale
+config.width if config.embedding_scale
models: scores scaled although the config says not
| tests/models/test_torch.py::test_the_model_equals_its_twin[encoder-decoder (T5)]
-scale=None if config.scale_scores else 1.0
+scale=None
models: a decoder counts distances to both sides
| tests/models/test_torch.py::test_the_model_equals_its_twin[decoder (positions), relative]
-bidirectional=not causal
+bidirectional=True
models: the pairing of the config ignored
| tests/layers/test_position.py::test_queries_and_keys_are_turned_as_the_config_says
-pairing=config.rotary_pairing,
+
# engines/jax/programs.py
fixed cache: padding is seen | tests/engines/jax/test_cache.py::test_padding_is_masked_and_stands_at_the_first_position
-np.arange(self.capacity) >= self.padding[:, None]
+np.arange(self.capacity) >= 0 * self.padding[:, None]
fixed cache: places that are not filled yet are seen
| tests/engines/jax/test_cache.py::test_new_tokens_see_what_the_pattern_allows_of_what_is_filled
- & (columns <= rows[:, None])
+
device sampling: of equals all are kept
| tests/engines/jax/test_sampling.py::test_the_device_chooses_what_the_host_chooses
-heavier_than(bits) + earlier < limit
+heavier_than(bits) < limit
# layers/position.py
rotary positions: their base ignored
| tests/layers/test_position.py::test_queries_and_keys_are_turned_as_the_config_says
-base=self.base,
+
"""
