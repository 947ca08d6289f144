"""Bugs of the engine jax, as diffs; `mutations.py` says how they are written."""

COMPILED_BUGS = """\
# engines/jax/stack.py
loop: memory and bias get gradients from one block
| tests/engines/jax/test_stack.py::test_a_loop_over_blocks_equals_numpy[encoder-decoder (T5)]
-return read.after(later), grads
+return read, grads
loop: the backward pass goes forward
| tests/engines/jax/test_stack.py::test_a_loop_over_blocks_equals_numpy[decoder (Llama)]
-, arrays, reverse=True)
+, arrays)
# layers/stack.py
remat: dropout forgotten when a block runs again
| tests/engines/jax/test_stack.py::test_blocks_that_run_again_give_the_same_bits[encoder (BERT), dropout-numpy]
-_, record = self.block.forward(params, record.x, key=record.key, **extra_inputs)
+_, record = self.block.forward(params, record.x, **extra_inputs)
# engines/jax/trainer.py
loss scaling: never undone | tests/engines/jax/test_trainer.py::test_the_scale_is_undone
-lambda g: g / state["scale"].astype(g.dtype)
+lambda g: g
loss scaling: grows although a step was refused | tests/engines/jax/test_trainer.py::test_the_scale_follows_its_rules
-xp.where(moved & ~grows, good, 0)
+xp.where(~grows, good, 0)
compiled: microbatches weighed alike | tests/engines/jax/test_trainer.py::test_ten_steps_are_those_of_numpy[padding]
-shares = target_shares(counts)
+shares = jax.numpy.ones(parts) / parts
compiled: all microbatches drop the same | tests/engines/jax/test_trainer.py::test_ten_steps_are_those_of_numpy[loop]
-jax.numpy.stack([ops.fold_key(key, number) for number in range(parts)])
+jax.numpy.stack([ops.fold_key(key, 0) for number in range(parts)])
compiled: a refused step moves
| tests/engines/jax/test_trainer.py::test_steps_that_are_not_numbers_move_nothing_and_end_a_run
-lambda new, old: xp.where(moved, new, old), after
+lambda new, old: new, after
# training/optimizer.py
optimizer: norms and biases of stacked blocks decayed
| tests/engines/jax/test_trainer.py::test_ten_steps_are_those_of_numpy[loop]
-vmap(lambda p, g, memory: self.move(one, p, g, memory, *scalars))(p, g, memory)
+(lambda p, g, memory: self.move(one, p, g, memory, *scalars))(p, g, memory)
# engines/jax/placement.py
padding: added examples count | tests/engines/jax/test_trainer.py::test_an_evaluation_on_the_devices_is_that_of_numpy
-constant_values=IGNORE if name == "targets" else 0
+constant_values=0
# engines/jax/fused.py
fused norm: columns beyond the last count in the mean square
| tests/engines/jax/test_fused.py::test_norms_equal_their_ops
-part = jnp.where(inside, wide - mean, 0.0)
+part = wide - mean
fused loss: ignored targets have gradients | tests/engines/jax/test_fused.py::test_the_loss_equals_its_op
-factor = jnp.where(target < 0, 0.0, unit_ref[0])
+factor = unit_ref[0]
# engines/jax/attention.py
fused attention: a window one key too wide | tests/engines/jax/test_fused.py::test_the_pair_is_cudnns_own_on_a_gpu
-"sliding_window_length": pattern.window}
+"sliding_window_length": pattern.window and pattern.window + 1}
"""
