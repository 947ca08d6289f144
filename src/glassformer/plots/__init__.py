"""Pictures of what happens inside a model: functions that return matplotlib figures.

    figure = attention_heads(seen.attention["decoder"][0], seen.labels["decoder"])
    save(figure, "attention.png")

    with themed("dark"):                      # for dark slides
        save(loss_curve(metrics), "loss.svg")     # or .pdf

No window is opened and nothing global is touched: a figure exists until nobody holds it any more.
"""

from .attention import attention_grid, attention_heads, full_against_causal
from .drawing import draw_sections, save_themes, write_page
from .heads import head_positions, head_specialization
from .inspection import inspect_model
from .layers import layer_curves
from .lengths import LengthCurve, length_curves
from .loss import loss_curve
from .memory import memory_bars
from .methods import detector_maps, lens_map, patching_map, signed_bars
from .positions import position_heat_map, similarity_curve
from .predictions import prediction_bars, prediction_table
from .replay import training_course
from .replay_page import write_replay
from .report import Fold, Picture, Section, Sketch, Table, saved_picture, write_report
from .style import FORMATS, save
from .theme import THEMES, themed

__all__ = [
    "FORMATS",
    "THEMES",
    "Fold",
    "LengthCurve",
    "Picture",
    "Section",
    "Sketch",
    "Table",
    "attention_grid",
    "attention_heads",
    "detector_maps",
    "draw_sections",
    "full_against_causal",
    "head_positions",
    "head_specialization",
    "inspect_model",
    "layer_curves",
    "length_curves",
    "lens_map",
    "loss_curve",
    "memory_bars",
    "patching_map",
    "position_heat_map",
    "prediction_bars",
    "prediction_table",
    "save",
    "save_themes",
    "saved_picture",
    "signed_bars",
    "similarity_curve",
    "themed",
    "training_course",
    "write_page",
    "write_replay",
    "write_report",
]
