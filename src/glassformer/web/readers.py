"""Readers that remember what they have read: a question about the next token need not begin at the first one.

A page asks for one token after the other, and goes back to any of them. So the last few readers are kept where they
are, and the logits after the last few sequences: going on costs one token, going back nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from .. import dispatch
from ..arrays import Array, Tree
from ..generation.reader import CHUNK, Reader, checked
from ..models import Model

READERS = 3
LOGITS = 64
"""So many readers, and logits of so many sequences, are kept of a model."""

Ids = tuple[int, ...]
Key = tuple[Ids, Ids | None]


class Readers:
    """Gives the logits after any sequence."""

    def __init__(self) -> None:
        self._logits: OrderedDict[Key, Array] = OrderedDict()
        self._readers: OrderedDict[Key, Reader] = OrderedDict()
        self._lock = threading.Lock()

    def logits(self, model: Model, params: Tree, ids: Ids, source: Ids | None) -> Array:
        """Return the logits (V,) about the token that follows ids, and with an encoder-decoder a source."""
        key = ids, source
        with self._lock:
            if key in self._logits:
                self._logits.move_to_end(key)
                return self._logits[key]
            # Whoever reads on with it has it alone.
            before = self._readers.pop((ids[:-1], source), None)
        rows, sources = checked(model, [ids], None if source is None else [source])
        reader: Any = before
        if reader is None:
            reader = dispatch.current().reader(model, params, rows, sources, chunk=CHUNK, room=1)
        else:
            reader.read(np.array([ids[-1]]))
        logits = np.array(reader.logits[0])
        with self._lock:
            self._readers[key], self._logits[key] = reader, logits
            while len(self._readers) > READERS:
                self._readers.popitem(last=False)
            while len(self._logits) > LOGITS:
                self._logits.popitem(last=False)
        return logits
