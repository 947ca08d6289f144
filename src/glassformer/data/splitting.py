"""Which examples are held out: by chance, or by a hash that is the same in every run."""

import hashlib
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import ConfigError, DataError


def hash_fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone: the same on every machine and for every seed."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()) / 2**56


def random_split(count: int, shares: tuple[float, ...], seed: int) -> list[Array]:
    """Return the numbers 0 … count − 1 in random order, cut at these shares of them; the last part takes the rest."""
    check_seed(seed)
    if count < len(shares) + 1:
        raise DataError(f"{count} examples cannot be split into {len(shares) + 1} parts", hint="use more data")
    order = np.random.default_rng(seed).permutation(count)
    cuts = [int(share * count) for share in np.cumsum(shares)]
    # Every part gets at least one example, however few there are.
    for part in range(len(cuts)):
        cuts[part] = min(max(cuts[part], part + 1), count - len(cuts) + part)
    return np.split(order, cuts)


def check_seed(seed: Any) -> None:
    """Refuse seeds that are not whole numbers from 0 on."""
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"the seed is {seed!r}", hint="use a whole number from 0 on")
