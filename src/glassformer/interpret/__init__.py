"""Looking inside: what a model did with an example, as arrays that can be read, compared and drawn.

run = model.watch("The capital of France is")     # a model that has a tokenizer; tables then show tokens
attribute(run, Logit(" Paris", against=" Rome"))

run = watch(model, params, batch)         # every value by its name
attention_maps(run)["decoder"].weights    # (L, H, T, S): the weights of every layer and head
head_scores(run)["decoder"].kinds         # what kind of head each one is
run.changed(zero("blocks.0.attention.output.x", head=1)).loss    # what would have been
gradients(run)["blocks.0.attention.attend.weights"]              # the gradient of the loss for it
Cards(run).card("blocks.0", (0, 3, 5)).filled                    # what one number is made of

lens(run).ranks(7)                        # how likely token 7 is at every point of the stream
attribute(run, Logit(7, against=3))       # what every head, layer and bias adds to a difference of logits
ablate_heads(run).rows()                  # what is lost without each head
patch_stream(run, other, Logit(7))        # which vectors carry the difference between two prompts
detect_heads(model)                       # previous-token heads, induction heads, …
"""

from ..core.arguments import public
from ..core.quantized import unpacked
from ..core.show import show
from ..text.tokenizer import NUMBERS, Labels, token_labels
from .ablation import ablate, ablate_heads, ablate_layers, ablate_neurons
from .activations import Activations, activations, exciting_inputs
from .attention import (
    AttentionMaps,
    attention_maps,
    attention_rollout,
    full_and_causal,
    products,
    score_scale,
    value_weighted_attention,
)
from .attribution import attribute, neuron_attribution
from .card import Card, evaluate
from .cards import Cards, Proof
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
    transform,
    zero,
)
from .circuits import Circuit, Composition, composition, copying_score, head_circuit
from .embeddings import (
    MARKED_DISTANCES,
    Fourier,
    Similarity,
    fourier,
    fourier_basis,
    position_table,
    similarity_by_distance,
    similarity_matrix,
    without_positions,
)
from .formula import Formula, Link, Operand
from .gradients import Gradients, Logit, Loss, Sum, gradients
from .heads import HeadScores, HeadStatistics, detect_heads, head_scores, repeated_tokens
from .learning import Update, gradient_flow, update
from .lens import Lens, LensCourse, lens, lens_course, train_lens, tuned_lens
from .names import Where
from .patching import Patching, patch_heads, patch_stream, patch_sublayers
from .paths import Paths, all_receivers, all_senders, at, attribute_edges, patch_path, patch_paths
from .probes import fit_probe, layer_similarity, linear_cka, probe_points, train_probe
from .run import Kept, Run, watch
from .saliency import gradient_times_input, integrated_gradients, saliency
from .steering import steering_vector
from .stream import LayerStatistics, head_results, layer_statistics, token_rows
from .sweep import batched_interventions, bytes_at_once
from .words import Explanation, Word, explain

__all__ = [
    "MARKED_DISTANCES", "NUMBERS", "Activations", "AttentionMaps", "Card", "Cards", "Change", "Circuit", "Composition",
    "Explanation", "Formula", "Fourier", "Gradients", "HeadScores", "HeadStatistics", "Kept", "Labels",
    "LayerStatistics", "Lens", "LensCourse", "Link", "Logit", "Loss", "Operand", "Patching", "Paths", "Proof", "Run",
    "Similarity", "Sum", "Update", "Where", "Word", "ablate", "ablate_heads", "ablate_layers", "ablate_neurons",
    "activations", "add", "add_gradient", "all_receivers", "all_senders", "at", "attention_maps", "attention_rollout",
    "attribute", "attribute_edges", "batched_interventions", "bytes_at_once", "composition", "copying_score",
    "detect_heads", "evaluate", "exciting_inputs", "explain", "fit_probe", "fourier", "fourier_basis", "freeze",
    "full_and_causal", "gradient_flow", "gradient_times_input", "gradients", "head_circuit", "head_results",
    "head_scores", "integrated_gradients", "layer_similarity", "layer_statistics", "lens", "lens_course", "linear_cka",
    "mean", "neuron_attribution", "patch_heads", "patch_path", "patch_paths", "patch_stream", "patch_sublayers",
    "position_table", "probe_points", "products", "put", "put_gradient", "repeated_tokens", "resample", "saliency",
    "scale", "scale_gradient", "score_scale", "show", "similarity_by_distance", "similarity_matrix", "steering_vector",
    "stop", "take", "token_labels", "token_rows", "train_lens", "train_probe", "transform", "tuned_lens", "unpacked",
    "update", "value_weighted_attention", "watch", "without_positions", "zero",
]  # fmt: skip
RETIRED = {
    "trace": "attention_maps(watch(model, params, batch))",
    "trace_each": "attention_maps(watch(model, params, batch), example)",
    "trace_of": "attention_maps(run, example)",
    "Trace": "attention_maps(run), and values by name: run[name]",
    "head_statistics": "head_scores(run)[kind]",
}


def __getattr__(name: str) -> object:
    """Refuse a name that is not there; of a retired one, say what there is instead."""
    hint = f": use {RETIRED[name]}" if name in RETIRED else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


__dir__ = __all__.copy
public(globals(), __all__, is_strict=True)
