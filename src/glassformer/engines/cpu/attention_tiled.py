"""The kernel of `ops.attention_tiled`: attention in tiles over all cores.

Queries and keys that attend by one pattern form a part: all of them, or those of one remainder of a strided pattern.
A job is a run of queries (forward) or of keys (backward) of one head in one part. Cores share nothing but what they
read. Where two of them work on keys of the same head, the second collects its part of the queries' gradients apart, and
it is added when both are done.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ... import ops
from ...core.arrays import Array, check_broadcast, check_mask
from ...core.dispatch import replaces
from ...core.errors import GlassformerError
from ...core.threads import cores
from ...ops.attention import check_heads, default_scale
from ...ops.attention_strided import beyond, can_split, neighborhood
from ...ops.attention_tiled import TiledSaved
from ...ops.dropout import check_rate
from ...ops.mask import FULL, Pattern
from .attention import WORTHWHILE, checked_spans
from .compile import REAL
from .cores import each
from .elementwise import is_key
from .tiles import Grads, Problem, attend_tiles, attend_tiles_backward, pairs_of

ROWS, COLUMNS = 48, 512  # queries and keys of a tile: two tiles, and all that they meet, fit into a core's cache


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

    def seen_by(self, rows: slice, keys: int) -> slice:
        """Return the keys that some query of a run may see."""
        start = int(self.first[rows.start])
        return slice(start, max(start, min(int(self.last[rows.stop - 1]), keys)))

    def seeing(self, columns: slice, keys: int) -> slice:
        """Return the queries that may see some key of a run."""
        start = int(np.searchsorted(self.last, columns.start, side="right"))
        stop = int(np.searchsorted(self.first, columns.stop, side="left"))
        return slice(start, max(start, min(stop, keys - self.offset)))


@replaces(ops.attention_tiled)
def attention_tiled(
    q: Array, k: Array, v: Array, bias: Array | None = None, *, mask: Array | None = None, pattern: Pattern = FULL,
    key: Array | None = None, rate: float = 0.0, scale: float | None = None, tile: int = 128,
) -> Any:  # fmt: skip
    if not _covers(q, k, v, bias, mask, key, pattern, rate) or tile < 1:
        return NotImplemented
    scale = float(default_scale(q) if scale is None else scale)
    y = _zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    # A query that has seen nothing has the logarithm of zero, until all is done.
    log_sum = np.full((*q.shape[:-1], 1), -np.inf, q.dtype)
    saved = TiledSaved(q, k, v, bias, mask, key if rate > 0 else None, y, log_sum)
    for stage in stages(saved, pattern):
        problem = _problem(saved, stage, rate, scale)
        examples, _, heads, _ = problem.q.shape
        shares = forward_jobs(stage, examples, heads, ROWS)
        each([partial(attend_tiles, joined(jobs), problem, ROWS, COLUMNS) for jobs in shares])
    log_sum[log_sum == -np.inf] = np.inf
    return y, saved


@replaces(ops.attention_tiled_backward)
def attention_tiled_backward(
    dy: Array, saved: TiledSaved, *,
    pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None, tile: int = 128,
) -> Any:  # fmt: skip
    q, k, v, bias = saved[:4]
    if not _covers(*saved[:6], pattern, rate):
        return NotImplemented
    wanted, levels = (*q.shape[:-1], v.shape[-1]), (*q.shape[:-1], 1)
    for x, shape in ((dy, wanted), (saved.y, wanted), (saved.log_sum, levels)):
        if type(x) is not np.ndarray or x.shape != shape or x.dtype != q.dtype:
            return NotImplemented
    scale = float(default_scale(q) if scale is None else scale)
    dq, dk, dv = (_zeros(x.shape, q.dtype) for x in (q, k, v))
    dbias = np.zeros((1,) * 4 if bias is None else (*(1,) * (4 - bias.ndim), *bias.shape), q.dtype)
    along = _levels(np.vecdot(dy, saved.y)[..., None])
    grads = Grads(_by_position(dy), along, _by_position(dq), _by_position(dk), _by_position(dv), dbias)
    for stage in stages(saved, pattern):
        problem = _problem(saved, stage, rate, scale)
        examples, _, heads, _ = problem.k.shape
        shares, sums = backward_jobs(stage, examples, heads, COLUMNS), [grads]
        for joins in begun(shares)[1:]:
            apart = np.zeros_like(grads.dq) if joins else grads.dq
            sums.append(grads._replace(dbias=np.zeros_like(dbias), dq=apart))
        both = zip(shares, sums, strict=True)
        each([partial(attend_tiles_backward, jobs, problem, x, ROWS, COLUMNS) for jobs, x in both])
        for x in sums[1:]:
            dbias[...] += x.dbias
            if x.dq is not grads.dq:
                grads.dq[...] += x.dq
    return dq, dk, dv, None if bias is None else dbias.reshape(bias.shape)


def _problem(saved: TiledSaved, stage: Stage, rate: float, scale: float) -> Problem:
    q, k, v, y = map(_by_position, (saved.q, saved.k, saved.v, saved.y))
    log_sum, pairs = _levels(saved.log_sum), pairs_of(saved, stage.pattern, rate)
    return Problem(q, k, v, y, log_sum, scale, stage.step, stage.first, stage.last, pairs)


def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros (..., H, T, C) that lie by position, so that putting the heads side by side moves nothing."""
    if len(shape) == 2:
        return np.zeros(shape, dtype)
    return np.zeros((*shape[:-3], shape[-2], shape[-3], shape[-1]), dtype).swapaxes(-3, -2)


def _by_position(heads: Array) -> Array:
    """View (..., H, T, C) as (B, T, H, C) in C order, or copy it if it lies differently."""
    x = heads[None] if heads.ndim == 2 else heads
    x = np.ascontiguousarray(x.swapaxes(-3, -2))
    return x.reshape(-1, *x.shape[-3:])


def _levels(x: Array) -> Array:
    """View (..., H, T, 1) as (B, H, T) in C order, or copy it if it lies differently."""
    return np.ascontiguousarray(x).reshape(-1, x.shape[-3] if x.ndim > 2 else 1, x.shape[-2])


def _covers(q: Array, k: Array, v: Array, bias: Any, mask: Any, key: Any, pattern: Pattern, rate: float) -> bool:
    """Return whether all arrays are real, of one type, not empty and of fitting shapes."""
    arrays = [x for x in (q, k, v, bias) if x is not None]
    if not all(type(x) is np.ndarray and x.dtype == q.dtype for x in arrays) or q.dtype not in REAL:
        return False
    if type(mask) not in (type(None), np.ndarray) or not (key is None or is_key(key)):
        return False
    try:
        check_heads(q, k, v)
        check_rate(rate)
        pattern.check_lengths(q.shape[-2], k.shape[-2])
        shape = (*q.shape[:-1], k.shape[-2])
        if mask is not None:
            check_mask(mask, shape)
        if bias is not None:
            check_broadcast(bias, shape, what="the bias")
    except GlassformerError:
        return False
    return q.size > 0 and v.size > 0 and (bias is None or q.ndim <= 4)


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
    """Return jobs for each core: example, head, start of the part, its keys, the run of keys, the queries it meets."""
    return _dealt(stage, examples, heads, size, 0, stage.seeing)


def _dealt(
    stage: Stage, examples: int, heads: int, size: int, fewer: int, others: Callable[[slice, int], slice]
) -> list[Array]:
    """Deal runs out to the cores in order, in shares of about equal work: pairs of a run and the others it meets."""
    jobs: list[tuple[int, ...]] = []
    for start in range(stage.parts):
        keys = len(range(start, stage.keys, stage.step))
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


def joined(jobs: Array) -> Array:
    """Return the jobs of one core with the runs of each head as one."""
    heads = [list(runs) for _, runs in itertools.groupby(jobs.tolist(), lambda job: job[:4])]
    return np.asarray([[*runs[0][:5], runs[-1][5], runs[0][6], runs[-1][7]] for runs in heads], np.int64)


def begun(shares: list[Array]) -> list[bool]:
    """Return for each share whether it goes on with the head that the share before ends with."""
    same = [bool((a[-1, :3] == b[0, :3]).all()) for a, b in itertools.pairwise(shares)]
    return [False, *same]
