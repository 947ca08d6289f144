"""The affine map with a matrix in fewer bits."""

from __future__ import annotations

from ..arrays import Array
from ..engine import accelerated
from ..quantized import Quantized


@accelerated
def quantized_product(x: Array, w: Quantized) -> Array:
    """Multiply x (..., I) by the numbers that a matrix in blocks w (I, O) stands for: y = x w."""
    return x @ w.dequantize()
