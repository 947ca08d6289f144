"""Kernels for hot ops on a GPU."""

import jax

from ..stack import is_spread

_FIRST = 8  # of the compute capabilities: Ampere's


def runs_kernels() -> bool:
    """Tell whether JAX computes on a GPU of NVIDIA from Ampere on: neither Triton nor cuDNN's attention runs on others.

    There, the ops run as they are written.
    """
    if jax.default_backend() != "gpu":
        return False
    capability = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    major = capability.partition(".")[0]
    return major.isdigit() and int(major) >= _FIRST


def on_one_gpu() -> bool:
    """Tell whether a program is for a single such GPU: kernels of our own are not split over several."""
    return not is_spread() and runs_kernels()
