"""Numba, ready to compile: what it sets up for its first function takes longer than to load all kernels."""

import numba
import numpy as np


@numba.njit
def doubled(x):
    return 2 * x


doubled(np.ones(1))
