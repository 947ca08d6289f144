"""The words of an inspection: what each picture shows and what to look for."""

READ = "What the model read, token by token."
SIGNS = " Signs stand for what cannot be seen: ␣ for a space, ↵ for the end of a line."
OVER = "What the heads and layers do is averaged over {count} examples; everything else shows the first of them."

HEADINGS = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}

ATTENTION = {
    "encoder": "Every token gathers information from all the others. How much it takes from each is its attention: "
    "a row of weights that sums to one.",
    "decoder": "Every token gathers information from itself and those before it, never from the future, which it is "
    "to predict. Gray cells are the ones the mask forbids.",
    "cross": "While it writes, the decoder looks back at what the encoder read. Rows are the tokens written so far, "
    "columns the tokens of the source.",
}

MAPS = {
    "encoder": "Read a row from left to right: where does this token look? Compare heads: some watch neighbors, "
    "some watch one special token, some spread their attention evenly.",
    "decoder": "Read a row from left to right: where does this token look? A strong line just below the diagonal is a "
    "head that watches the previous token; a strong first column is a head that rests on the first.",
    "cross": "Read a row from left to right: which part of the source does the model consult before it writes the next "
    "token? Where the order is kept, strong cells run along the diagonal.",
}

GRID = "All heads at a glance. Look for shapes: diagonals, columns, even washes. Each layer is shown larger below."
CLASSES = "The encoder reads the whole sequence, and one linear layer turns what it found into a score for each class."
CLASS_BARS = "The longer the bar, the surer the model. The bars of all classes sum to 100 %."
TOKENS = "After every token the model says how likely each token of its vocabulary is to come next."
MASKED_TOKENS = "At every position the model says how likely each token of its vocabulary is to stand there."
TOKEN_BARS = "The likeliest tokens at the last position that matters. Green marks the right answer, where it is known."

TOKEN_TABLE = (
    "Each column is one position, with the tokens the model holds likeliest, in a stronger color for more probable. "
    "A green frame marks the right one, where it is known: in the first row, the model had it."
)

MASK = (
    "The same queries and keys, twice: once with every token visible, once under the causal mask. It is the head that "
    "the mask changes most."
)

MASK_MAPS = (
    "The mask removes the upper triangle, and each row is shared out again among what is left: compare a row on the "
    "left with the same row on the right. The first token has only itself to look at."
)

HEADS = (
    "Heads that look everywhere alike do the same work; heads that specialize divide it. The score is one minus the "
    "entropy of a head's weights, as a share of the largest possible entropy: 0 for even attention, 1 for a head that "
    "always looks at a single token."
)

SCORE = "Heads in strong colors are specialists."
NAMED = " The name says where most of their attention goes."

RECEIVED = "A bar above the line gets more attention than chance would give it."
EARLY = " Under a causal mask chance favors early tokens, because more queries can see them."

POSITIONS = "Attention alone cannot tell the order of tokens. These vectors, added to the tokens, tell it."

TABLE = {
    "sinusoidal": "Each row is the vector of one position. Left columns oscillate fast and tell neighbors apart; right "
    "columns turn slowly and tell far from near.",
    "learned": "Each row is the vector of one position, as training left it. Rows that were never used stay as random "
    "as they began.",
}

SIMILARITY = (
    "How alike the vectors of two positions are, by how far apart they stand. Near positions that look alike let the "
    "model reason about closeness. The band covers all pairs at that distance."
)

LAYERS = (
    "A token's vector passes through the blocks and each adds to it. The statistics show whether it grows, shrinks or "
    "stays, and how much of it each block rewrote."
)

CURVES = (
    "Left: the values that leave each layer. Middle: their size. Right: how far each block moved its input. "
    "Sizes that explode or vanish from layer to layer are a warning."
)

COLUMNS = (
    "Over all tokens and features. zeros: the share that is exactly 0; length: of the vector of a token, on average; "
    "change: how far the block moved that vector, as a share of its length."
)

LENS = (
    "The vector of a token has one width from the first block to the last, so the head can read it anywhere: what "
    "would the model have said, had it stopped there?"
)

LENS_MAP = (
    "Read a column from below: the likeliest token after each layer, in a stronger color for more probable. On top "
    "stands what the model says. Where a column turns to its answer, the layers below have found it."
)

ATTRIBUTION = (
    "The likeliest answer has the logit {value:.4g}. It is a sum: of what the embeddings, every head, every "
    "feed-forward layer and every bias write to the stream in its favor, or against it."
)

PARTS = (
    "The longest bars decide. This is the direct path alone: what a part does by way of later layers counts as theirs."
)

KINDS = (
    "What every head does with random tokens that come twice: nothing in them is worth looking at but places and the "
    "repetition. Induction heads look at what followed the same token before, which is what comes next."
)

TRAINING = "How the model came to be."

LOSS = (
    "The loss is how surprised the model is by the right answer, in nats. Watch whether validation still falls: when "
    "it turns up while training goes on down, the model has begun to memorize."
)
