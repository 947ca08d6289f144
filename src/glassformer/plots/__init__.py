"""Pictures of what happens inside a model: functions that return matplotlib figures.

    figure = attention_heads(seen.attention["decoder"][0], seen.labels["decoder"])
    save(figure, "attention.png")

No window is opened and nothing global is touched: a figure exists until nobody holds it any more.
"""

from .attention import attention_grid, attention_heads, full_against_causal
from .heads import head_positions, head_specialization
from .inspection import inspect_model
from .layers import layer_curves
from .lengths import LengthCurve, length_curves
from .loss import loss_curve
from .memory import memory_bars
from .positions import position_heat_map, similarity_curve
from .predictions import prediction_bars, prediction_table
from .report import Picture, Section, Table, saved_picture, write_report
from .style import save

__all__ = [
    "LengthCurve", "Picture", "Section", "Table", "attention_grid", "attention_heads", "full_against_causal",
    "head_positions", "head_specialization", "inspect_model", "layer_curves", "length_curves", "loss_curve",
    "memory_bars", "position_heat_map", "prediction_bars", "prediction_table", "save", "saved_picture",
    "similarity_curve", "write_report",
]  # fmt: skip
