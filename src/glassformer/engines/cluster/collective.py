"""Collectives of all processes of a run: wait for each other, agree, and see what one wrote.

Every process must call these functions in the same order, once JAX's processes are connected; one alone need not wait.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import CheckpointError

PATIENCE = 15.0
"""Seconds until what one worker wrote to shared storage must be visible to another."""


def process() -> int:
    """Return the number of this process."""
    return int(sys.modules["jax"].process_index()) if _are_connected() else 0


def processes() -> int:
    """Return how many processes there are."""
    return int(sys.modules["jax"].process_count()) if _are_connected() else 1


def _are_connected() -> bool:
    """Return whether there are several processes, without waking up the devices of one that is alone."""
    return "jax" in sys.modules and bool(sys.modules["jax"].distributed.is_initialized())


def meet(where: str) -> None:
    """Wait until all processes have come to the same place in the program."""
    if processes() > 1:
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices(where)


def agreed(value: Any) -> Any:
    """Return the first process's value on all; anything that JSON can hold."""
    if processes() == 1:
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(broadcast_one_to_all(np.int32(len(text))))
    # What the others pass has no meaning, but must have the same size.
    text = text if process() == 0 else np.zeros(size, np.uint8)
    return json.loads(np.asarray(broadcast_one_to_all(text)).tobytes())


def any_of(value: bool) -> bool:
    """Return whether something holds in any of the processes."""
    if processes() == 1:
        return value
    from jax.experimental.multihost_utils import process_allgather

    return bool(np.any(process_allgather(np.asarray(value))))


@contextlib.contextmanager
def first_before_others(what: str) -> Iterator[bool]:
    """Have the first process do something alone, such as making a folder; the others follow when it is done.

    Gives whether this is the first one. If it fails, the others never get their turn: they end as after any loss.
    """
    if process():
        meet(what)
        yield False
    else:
        yield True
        meet(what)


def check_shared(path: Path) -> None:
    """Refuse a file or folder that the first process made and this one cannot see."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > deadline:
            raise CheckpointError(
                f"{path} cannot be seen from this machine, though worker 0 made it",
                hint="put the run on storage that all workers share, under the same path",
            )
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # lets network storage look again
