"""Attention by compiled loops: which file serves which case.

dense      ops.attention: products of all heads of a batch, and the softmax between them in place; head by head, by
           one of two `strategies`, where only positions decide which keys a query sees and no heads share keys
tiled      ops.attention_tiled: sequences whose weights would fill the memory, over all cores, computed by `tiles`
..stack    one more token of one sequence: a query for each head, and all keys there are
"""
