"""The scene: which values stand in the picture of a run, and how wide its residual stream is."""

from functools import partial
from typing import Any

from ...interpret import Run
from ...interpret.scene import SAYS, StackScene, Station, all_lengths, growth, scene
from ..explorer import RunSession
from ..router import route
from ..state import POSITIONS
from .attention import labels_at


@route("scene")
def describe_scene(session: RunSession) -> dict[str, Any]:
    """Return the stacks of the picture, each with the stations before, inside and behind its blocks."""
    run = session.run

    def fields(one: Any) -> dict[str, Any]:
        return {**one._asdict(), "shape": list(run[one.name].shape), "off": _switches(session.plain, one)}

    parts = [
        {"stack": one.stack, "tokens": one.tokens, "words": _words(run, one),
         "sums": run.model.config.block != "no_residual",
         "start": [*map(fields, one.start)], "end": [*map(fields, one.end)],
         "blocks": [{"name": block.name, "stations": [*map(fields, block.stations)]} for block in one.blocks]}
        for one in scene(run)
    ]  # fmt: skip
    return {"parts": parts, "says": SAYS, "growth": growth(run, stream_lengths(session, "value"))}


@route("lengths")
def stream_lengths(session: RunSession, what: str) -> dict[str, list[float]]:
    """Return the norm of the vector at each position of the stream, or of its gradient (`what` as in a tile)."""
    return session.once(f"lengths {what}", lambda: all_lengths(scene(session.run), partial(session.array, what)))


def _words(run: Run, one: StackScene) -> list[str]:
    """Return what stands at the lanes of a stack: its tokens, perhaps behind a learned vector."""
    last = [*one.start, *(station for block in one.blocks for station in block.stations)][-1]
    return labels_at(run, one.stack, run[last.name].shape[1], looked_at=False)


def _switches(run: Run, one: Station) -> list[dict[str, Any]]:
    """Return what can be switched off at a station: in words, with the changes that silence it."""
    found = {"this sublayer": [_change("zero", one.name)] if one.kind == "adds" else []}
    # A norm that takes away no mean and divides by nothing: y = gamma · x + beta
    off = {"mean": 0.0, "rstd": 1.0, "rrms": 1.0}
    for title, norm in {"this norm": one.name, "the norm of the embedding": f"{one.name}.norm"}.items():
        values = {f"{norm}.{word}": value for word, value in off.items() if f"{norm}.{word}" in run}
        found[title] = [_change("put", name, value) for name, value in values.items()]
    if one.kind == "embedding" and run.model.config.positions != "none":
        found[f"{run.model.config.positions} positions"] = [_change("zero", POSITIONS)]
    return [{"title": title, "changes": changes} for title, changes in found.items() if changes]


def _change(word: str, name: str, value: float = 0) -> dict[str, Any]:
    return {"word": word, "name": name, "where": {}, "value": value, "other": ""}
