"""Looking inside: what a model did with an example, as arrays that can be read, compared and drawn.

seen = trace(model, params, batch)
seen.attention["decoder"]                 # (L, H, T, S): who looked at whom, in every layer and head
head_statistics(seen, "decoder").kinds    # what kind of head each one is

run = watch(model, params, batch)         # every value by its name
run.changed(zero("blocks.0.attention.output.x", head=1)).loss    # what would have been
gradients(run)["blocks.0.attention.attend.weights"]              # what the loss says of it
"""

from .ablation import Ablation, ablate, ablate_heads, ablate_layers, ablate_neurons
from .attribution import Attribution, attribute, neuron_attribution
from .changes import (
    Change,
    add,
    add_gradient,
    freeze,
    mean,
    put,
    put_gradient,
    resample,
    scale,
    scale_gradient,
    stop,
    take,
    zero,
)
from .flow import Flow, gradient_flow
from .gradients import Gradients, Logit, Loss, Sum, gradients
from .heads import HeadStatistics, head_statistics, strongest_keys, top_positions
from .lens import Lens, lens
from .many import bytes_at_once, each, run_loss
from .positions import MARKED_DISTANCES, Similarity, position_table, similarity_by_distance, similarity_matrix
from .proof import Proof, prove
from .run import Run, watch
from .show import Shown, show
from .statistics import LayerStatistics, layer_statistics
from .trace import NUMBERS, Labels, Trace, full_and_causal, token_labels, trace, trace_each
from .tuned_lens import TunedLens, train_lens, tuned_lens
from .update import Move, Update, update
from .where import Where

__all__ = [
    "MARKED_DISTANCES",
    "NUMBERS",
    "Ablation",
    "Attribution",
    "Change",
    "Flow",
    "Gradients",
    "HeadStatistics",
    "Labels",
    "LayerStatistics",
    "Lens",
    "Logit",
    "Loss",
    "Move",
    "Proof",
    "Run",
    "Shown",
    "Similarity",
    "Sum",
    "Trace",
    "TunedLens",
    "Update",
    "Where",
    "ablate",
    "ablate_heads",
    "ablate_layers",
    "ablate_neurons",
    "add",
    "add_gradient",
    "attribute",
    "bytes_at_once",
    "each",
    "freeze",
    "full_and_causal",
    "gradient_flow",
    "gradients",
    "head_statistics",
    "layer_statistics",
    "lens",
    "mean",
    "neuron_attribution",
    "position_table",
    "prove",
    "put",
    "put_gradient",
    "resample",
    "run_loss",
    "scale",
    "scale_gradient",
    "show",
    "similarity_by_distance",
    "similarity_matrix",
    "stop",
    "strongest_keys",
    "take",
    "token_labels",
    "top_positions",
    "trace",
    "trace_each",
    "train_lens",
    "tuned_lens",
    "update",
    "watch",
    "zero",
]
