"""The five reference systems of the literature, each a configuration of the same parts."""

import numpy as np

import glassformer as gf
from glassformer.interpret import layer_statistics, watch

rng = np.random.default_rng(0)

# 1. Six Transformer blocks: what leaves each of them.
blocks = gf.build("blocks")
params = blocks.init(seed=0)
run = watch(blocks, params, gf.Batch(rng.integers(0, 64, (1, 16))))
for row in layer_statistics(run):
    print(f"{row.name}: mean {row.mean:+.3f}, standard deviation {row.std:.3f}")

# 2. An encoder that classifies a sequence, by the mean of its tokens or by a learned CLS token.
for pooling in ("mean", "cls"):
    classifier = gf.build("majority", pooling=pooling)
    logits, _ = classifier.forward(classifier.init(seed=0), rng.integers(0, 3, (5, 8)))
    print(f"classifier ({pooling}): {logits.shape[0]} sequences, {logits.shape[1]} classes")

# 3. A decoder: logits, the five likeliest next tokens, probabilities that sum to one.
decoder = gf.build("tiny-decoder")
logits, _ = decoder.forward(decoder.init(seed=0), rng.integers(0, 100, (1, 10)))
p, _ = gf.ops.softmax(logits[0, -1])
print("decoder: the five likeliest", np.argsort(-p)[:5], "sum of all", p.sum().round(6))

# 4. A post-norm decoder with ReLU and no feed-forward biases: one step of learning 1 2 3 4 5 6.
counting = gf.build("counting")
params = counting.init(seed=0)
batch = gf.Batch(np.array([[1, 2, 3, 4, 5]]), np.array([[2, 3, 4, 5, 6]]))
before, grads = counting.loss_and_grads(params, batch)
params = gf.tree.tree_map(lambda p, g: p - 0.05 * g, params, grads)
print(f"counting: loss {before:.3f}, after one step of gradient descent {counting.loss(params, batch):.3f}")

# 5. An encoder-decoder with padding in the source, look-ahead mask and cross-attention.
translator = gf.build("tiny-seq2seq")
params = translator.init(seed=0)
source, target = rng.integers(0, 32, (2, 7)), rng.integers(0, 32, (2, 5))
real = gf.ops.padding_mask(np.array([7, 4]), 7)
logits, saved = translator.forward(params, source, target, source_mask=real)
cross = saved["decoder"]["blocks"][0]["cross_attention"].weights
print("encoder-decoder:", logits.shape, "weight on the padding of the second source", cross[1, :, :, 4:].sum())
