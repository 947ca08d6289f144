"""A training step in three sizes, in turns with PyTorch, torch.compile, JAX and the bare matrix products; its memory.

python benchmarks/train_step.py                           tables
python benchmarks/train_step.py --only tiny --no-peers    one size, this library alone
python benchmarks/train_step.py --json                    one JSON object; --help lists the other options
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glassformer.engines import cpu
from peers.machine import best_engine, core_count, takes_part
from peers.memory import UNKNOWN, is_told
from peers.process import Process, Talk, call, compete
from peers.report import BYTES, SECONDS, Bar, Check, Figure, Report, compared
from peers.show import main, talk
from peers.timing import Race, Spread

OURS, NUMPY = "glassformer cpu", "glassformer numpy"
EAGER, COMPILED, JAX = "PyTorch eager", "PyTorch compiled", "JAX jit"
PEERS = (EAGER, COMPILED, JAX)
THREADED, SHARDED = "matrix products", "matrix products, shards"
FLOOR_BAR, MEMORY_BAR = 1.3, 1.2
LOSS_LIMIT, GRADIENT_LIMIT = 1e-4, 1e-3
"""Allowed differences in float32: of the first losses, and of a gradient by its largest entry."""
MEMORY_STEPS, MEMORY_RUNS = 3, 3


@dataclass(frozen=True)
class Setting:
    """The sizes of a training step."""

    layers: int
    width: int
    heads: int
    length: int
    batch: int
    vocab: int

    @property
    def words(self) -> str:
        """The sizes for people."""
        sizes = f"{self.layers} layer{'s' * (self.layers > 1)}, width {self.width}, {self.heads} heads"
        return f"{sizes}, {self.length} tokens × {self.batch}, vocabulary {self.vocab}"


SETTINGS = {
    "tiny": Setting(layers=1, width=32, heads=4, length=8, batch=32, vocab=3),
    "small": Setting(layers=4, width=128, heads=4, length=64, batch=12, vocab=65),
    "medium": Setting(layers=6, width=384, heads=6, length=256, batch=4, vocab=65),
}
SPEED_BARS = {"tiny": 1.2, "small": 1.3, "medium": 1.15}


def bench_train(*, peers: bool, seconds: float, sizes: Sequence[str] = (), talk: Talk = talk) -> Iterator[Report]:
    """Measure every setting, or those named: the time of a step, then the memory it takes."""
    for name in sizes or SETTINGS:
        yield step_time(name, SETTINGS[name], peers=peers, seconds=seconds, talk=talk)
        yield step_memory(name, SETTINGS[name], peers=peers, talk=talk)


def step_time(name: str, setting: Setting, *, peers: bool, seconds: float, talk: Talk) -> Report:
    """Let all contenders train the same model on the same batches, in turns."""
    notes: list[str] = []
    processes = contenders(setting, peers=peers, notes=notes)
    result, ready = compete(processes, what=f"train/{name}", seconds=seconds, talk=talk, notes=notes)
    facts = {process.name: process.facts for process in ready.values()}
    checks = [same_losses(facts)]
    if EAGER in ready:
        checks += same_gradients(setting)
    floor = result.fastest([THREADED, SHARDED])
    assert floor is not None
    baseline = result.fastest(PEERS) or NUMPY
    return Report(
        name=f"train/{name}",
        title=f"one training step: {setting.words}",
        unit=SECONDS,
        ratio=f"× as fast as {baseline}",
        figures=compared(result, baseline),
        bars=bars(name, result, baseline, floor),
        checks=checks,
        notes=notes,
        facts={
            **asdict(setting),
            "parameters": next(iter(facts.values()))["parameters"],
            "baseline": baseline,
            "floor": floor,
            "times_the_floor": {name: result.times_faster(floor, name).median for name in result.rounds},
        },
    )


def contenders(setting: Setting, *, peers: bool, notes: list[str]) -> list[Process]:
    """Return those that can run here; say in `notes` which cannot."""
    sizes = asdict(setting)
    place = "peers.steps"
    result = [Process(NUMPY, f"{place}:Ours", {**sizes, "engine": "numpy"})]
    if best_engine() == "cpu":
        result.insert(0, Process(OURS, f"{place}:Ours", {**sizes, "engine": "cpu"}))
    else:
        notes.append("Numba is not installed, so the engine cpu was not measured: pip install numba")
    if takes_part("torch", peers=peers, notes=notes):
        result.append(Process(EAGER, f"{place}:Torch", {**sizes, "compiled": False}))
        result.append(Process(COMPILED, f"{place}:Torch", {**sizes, "compiled": True}))
    if takes_part("jax", peers=peers, notes=notes):
        result.append(Process(JAX, f"{place}:Jax", sizes))
    result.append(Process(THREADED, f"{place}:Floor", {**sizes, "shards": 1}))
    if core_count() > 1 and setting.batch > 1:
        result.append(Process(SHARDED, f"{place}:Floor", {**sizes, "shards": core_count()}))
    return result


def bars(name: str, result: Race, baseline: str, floor: str) -> list[Bar]:
    """Hold our step against its bars: the best of all peers, and the matrix products alone."""
    if OURS not in result.rounds:
        return []
    found = []
    if baseline != NUMPY and name in SPEED_BARS:
        speed = result.times_faster(OURS, baseline).median
        found.append(Bar(f"steps while {baseline} takes one", speed, SPEED_BARS[name]))
    if name == "medium":
        over = result.times_faster(floor, OURS).median
        found.append(Bar(f"time by that of the {floor}", over, FLOOR_BAR, at_most=True))
    return found


def same_losses(facts: dict[str, dict[str, Any]]) -> Check:
    """Compare the losses of the first steps, which all contenders took from the same weights on the same batches."""
    losses = [fact["losses"] for fact in facts.values() if fact["losses"]]
    error = max(max(column) / min(column) - 1 for column in zip(*losses, strict=False))
    return Check("first losses of all contenders, relative", error, LOSS_LIMIT)


def same_gradients(setting: Setting) -> list[Check]:
    """Compare our gradients with those of the twin in PyTorch."""
    asked = {**asdict(setting), "engine": best_engine()}
    found = call("peers.steps:gradient_difference", asked)
    return [
        Check("loss against PyTorch, relative", found["loss"], LOSS_LIMIT),
        Check("gradients against PyTorch, by their largest", found["gradients"], GRADIENT_LIMIT),
    ]


def step_memory(name: str, setting: Setting, *, peers: bool, talk: Talk) -> Report:
    """Measure by how much fresh processes grow when they train for a few steps."""
    title = f"memory of a training step: {setting.words}"
    if not is_told():
        return Report(f"train/{name}/memory", title, BYTES, "", [], notes=[UNKNOWN])
    talk(f"measuring: train/{name}/memory")
    sizes, place = asdict(setting), "peers.steps"
    engine = best_engine()
    ours = OURS if engine == "cpu" else NUMPY
    modules = ["peers.steps", *(f"{cpu.__name__}.{home}" for home in cpu.HOMES if engine == "cpu")]
    wanted = {ours: (f"{place}:Ours", {**sizes, "engine": engine}, modules)}
    notes: list[str] = []
    if takes_part("torch", peers=peers, notes=notes):
        wanted[EAGER] = (f"{place}:Torch", {**sizes, "compiled": False}, ["peers.steps", "torch"])
    if takes_part("jax", peers=peers, notes=notes):
        wanted[JAX] = (f"{place}:Jax", sizes, ["peers.steps", "jax"])
    found: dict[str, list[dict[str, int]]] = {contender: [] for contender in wanted}
    for _ in range(MEMORY_RUNS):
        for contender, (build, settings, imports) in wanted.items():
            asked = {"imports": imports, "build": build, "settings": settings, "steps": MEMORY_STEPS}
            found[contender].append(call("peers.memory:growth", asked))
    grown = {contender: Spread.of([row["growth"] for row in rows]) for contender, rows in found.items()}
    least = min((peer for peer in PEERS if peer in grown), key=lambda peer: grown[peer].median, default=ours)
    is_compared, theirs = least != ours, grown[least].median
    ratios = {contender: Spread.of([spread.median / theirs]) for contender, spread in grown.items() if is_compared}
    share = Bar(f"memory by that of {least}", grown[ours].median / theirs, MEMORY_BAR, at_most=True)
    return Report(
        name=f"train/{name}/memory",
        title=title,
        unit=BYTES,
        ratio=f"of what {least} takes" if is_compared else "",
        figures=[Figure(contender, spread, ratios.get(contender)) for contender, spread in grown.items()],
        bars=[share] if is_compared else [],
        notes=notes,
        facts={"processes": found},
    )


if __name__ == "__main__":
    main(
        __doc__,
        lambda given: bench_train(peers=given.peers, seconds=given.seconds, sizes=given.only),
        parts=[*SETTINGS],
    )
