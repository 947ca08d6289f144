"""Attention by compiled loops: which file serves which case.

    what is asked for                                          file
    ---------------------------------------------------------  ------------------------------------------------------
    ops.attention: a mask, a bias, dropout, strides, or        dense: products of all heads of a batch, and the softmax
    queries that share keys                                    between them in place
    ops.attention: only positions decide which keys a query    dense, head by head, by one of two strategies:
    sees, and each query head has keys of its own
        at most 16 keys, float32 heads of 4, 8, … channels     by_vectors: vector registers
        otherwise                                              by_products: BLAS, some queries at a time
    layers.Attention: such attention of a token to its own     layer checks and gathers, layer_loops computes: all
    sequence, with its four linear maps and its rotation       products and, between them, one of the strategies
    ops.attention_tiled: sequences whose weights would fill    tiled: over all cores, cut up by tile_jobs, computed by
    the memory                                                 tiles, with what tile_pairs says about single pairs
    one more token of one sequence (Stack.read_blocks)         ..decoding: a query for each head, and all keys there are

A block with such a layer is fused as a whole: see `..block`.
"""
