"""Figures of what happens inside a model: functions that return matplotlib figures.

    maps = attention_maps(run)["decoder"]
    figure = attention_heads(maps.weights[0], maps.queries)
    save(figure, "attention.png")

    with themed("dark"):                      # for dark slides
        save(loss_curve(metrics), "loss.svg")     # or .pdf

No window is opened and no global setting of matplotlib changes. Layers and heads are counted from 0.
"""

from ..core.arguments import public
from .attention_maps import attention_grid, attention_heads, full_against_causal
from .heads import detector_maps, head_positions, head_specialization, patching_map, path_map
from .inspection import inspect_model
from .layers import layer_curves, position_heat_map, similarity_curve
from .predictions import lens_map, prediction_bars, prediction_table, signed_bars
from .results import draw
from .style import FORMATS, THEMES, save, save_themes, themed
from .training import loss_curve, loss_curves, training_course

__all__ = [
    "FORMATS", "THEMES", "attention_grid", "attention_heads", "detector_maps", "draw", "full_against_causal",
    "head_positions", "head_specialization", "inspect_model", "layer_curves", "lens_map", "loss_curve",
    "loss_curves", "patching_map", "path_map", "position_heat_map", "prediction_bars", "prediction_table", "save",
    "save_themes", "signed_bars", "similarity_curve", "themed", "training_course",
]  # fmt: skip
__dir__ = __all__.copy
public(globals(), __all__)
