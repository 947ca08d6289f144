"""How tiled attention is cut into jobs, and how jobs are dealt out to cores.

Queries and keys that attend by one pattern form a part: all of them, or those of one remainder of a strided pattern.
A job is a run of queries (forward) or of keys (backward) of one head in one part.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ....arrays import Array
from ....ops.attention_strided import beyond, can_split, neighborhood
from ....ops.attention_tiled import TiledSaved
from ....ops.mask import Pattern
from ..cores import cores
from .strategies import checked_spans

WORTHWHILE = 1 << 17  # pairs of a query and a key; fewer are not worth a second core


class Stage(NamedTuple):
    """Parts start, start + step, … of queries and keys, for start = 0 … parts − 1, that obey the same pattern.

    first and last tell for each query of the longest part which keys it may see; neither ever moves back from one query
    to the next. In shorter parts there are fewer of both.
    """

    pattern: Pattern
    parts: int
    step: int
    queries: int  # in all
    keys: int
    first: Array  # (T,): the first key that each query may see
    last: Array  # (T,): the one after the last

    @property
    def offset(self) -> int:
        """Where the first query of a part is among its keys: the queries are the last."""
        return self.keys - self.queries

    def length(self, start: int) -> int:
        """Return how many keys a part has."""
        return len(range(start, self.keys, self.step))

    def seen_by(self, rows: slice, keys: int) -> slice:
        """Return the keys that some query of a run may see."""
        start = int(self.first[rows.start])
        return slice(start, max(start, min(int(self.last[rows.stop - 1]), keys)))

    def seeing(self, columns: slice, keys: int) -> slice:
        """Return the queries that may see some key of a run."""
        start = int(np.searchsorted(self.last, columns.start, side="right"))
        stop = int(np.searchsorted(self.first, columns.stop, side="left"))
        return slice(start, max(start, min(stop, keys - self.offset)))


def stages(saved: TiledSaved, pattern: Pattern) -> list[Stage]:
    """Return the stages of attention; a later one continues the softmax of an earlier one."""
    q, k, _, bias, mask = saved[:5]
    queries, keys = q.shape[-2], k.shape[-2]
    if not can_split(q, k, bias, mask, pattern):
        return [_stage(pattern, 1, 1, queries, keys)]
    stride = pattern.stride
    assert stride is not None
    near = _stage(neighborhood(pattern), 1, 1, queries, keys)
    # A position from which no other is a whole stride away has none to see.
    parts = min(stride, max(queries - stride, 0))
    return [near, _stage(beyond(pattern), parts, stride, queries, keys)] if parts else [near]


def _stage(pattern: Pattern, parts: int, step: int, queries: int, keys: int) -> Stage:
    longest = len(range(0, keys, step))
    first, last = checked_spans(pattern, range(longest - len(range(0, queries, step)), longest), longest)
    return Stage(pattern, parts, step, queries, keys, first, last)


def forward_jobs(stage: Stage, examples: int, heads: int, size: int) -> list[Array]:
    """Return jobs for each core: example, head, start of the part, its keys, the run of queries, the keys it sees."""
    return _dealt(stage, examples, heads, size, stage.offset, stage.seen_by)


def backward_jobs(stage: Stage, examples: int, heads: int, size: int) -> list[Array]:
    """Return jobs for each core: example, head, start of the part, its keys, the run of keys, and who sees them."""
    return _dealt(stage, examples, heads, size, 0, stage.seeing)


def _dealt(
    stage: Stage, examples: int, heads: int, size: int, fewer: int, others: Callable[[slice, int], slice]
) -> list[Array]:
    """Deal runs out to the cores in order, in shares of about equal work: pairs of a run and the others it meets."""
    jobs: list[tuple[int, ...]] = []
    for start in range(stage.parts):
        keys = stage.length(start)
        runs = [slice(a, min(a + size, keys - fewer)) for a in range(0, keys - fewer, size)]
        spans = [(run.start, run.stop, met.start, met.stop) for run in runs for met in [others(run, keys)]]
        for example, head in itertools.product(range(examples), range(heads)):
            jobs += [(example, head, start, keys, *span) for span in spans]
    table = np.asarray(jobs, np.int64)
    work = (table[:, 5] - table[:, 4]) * (table[:, 7] - table[:, 6] + 1)
    ends = np.cumsum(work)
    workers = cores() if ends[-1] >= WORTHWHILE else 1
    # A job belongs to the core in whose share of the work its middle lies.
    bounds = np.searchsorted(ends - work / 2, ends[-1] * np.arange(workers + 1) / workers)
    return [table[a:b] for a, b in itertools.pairwise(bounds) if a < b]


def begun(shares: list[Array]) -> list[bool]:
    """Tell for each share whether it goes on with the head that the share before ends with."""
    same = [bool((a[-1, :3] == b[0, :3]).all()) for a, b in itertools.pairwise(shares)]
    return [False, *same]
