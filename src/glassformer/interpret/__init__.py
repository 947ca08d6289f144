"""Looking inside: what a model did with an example, as arrays that can be read, compared and drawn.

seen = trace(model, params, batch)
seen.attention["decoder"]                 # (L, H, T, S): who looked at whom, in every layer and head
head_statistics(seen, "decoder").kinds    # what kind of head each one is
"""

from .heads import HeadStatistics, head_statistics, strongest_keys, top_positions
from .positions import MARKED_DISTANCES, Similarity, position_table, similarity_by_distance, similarity_matrix
from .statistics import LayerStatistics, layer_statistics
from .trace import NUMBERS, Labels, Trace, full_and_causal, token_labels, trace, trace_each

__all__ = [
    "MARKED_DISTANCES",
    "NUMBERS",
    "HeadStatistics",
    "Labels",
    "LayerStatistics",
    "Similarity",
    "Trace",
    "full_and_causal",
    "head_statistics",
    "layer_statistics",
    "position_table",
    "similarity_by_distance",
    "similarity_matrix",
    "strongest_keys",
    "token_labels",
    "top_positions",
    "trace",
    "trace_each",
]
