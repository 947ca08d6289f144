"""Who executes the mathematics, and the options of the engine jax: precision, devices, other processes of a run."""

import contextlib
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ..dispatch import VARIABLE, engine, set_engine
from ..errors import ConfigError
from ..execution import Execution, MeshShape


def _choose(name: str | None) -> str | None:
    if name is not None:
        set_engine(name)
    return name


EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        callback=_choose,
        help="Who computes: cpu (compiled kernels, the default), numpy (every op as its source reads) or jax.",
    ),
]
MeshOption = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        metavar="AXES",
        help="Devices along each axis, such as data=2,fsdp=2,tensor=2 (with jax; default: all along data).",
    ),
]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", metavar="TYPE", help="float32, bfloat16 or float16 (with jax).")
]
ScanOption = Annotated[bool, typer.Option("--scan", help="Compile all blocks as one loop (with jax).")]
RematOption = Annotated[bool, typer.Option("--remat", help="Run blocks again instead of keeping records (with jax).")]
RulesOption = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="FILE|RULES",
        help="How parameters are split, before the table: a JSON file, or *attention.key.w=fsdp,none;… (with jax).",
    ),
]
CoordinatorOption = Annotated[
    str | None,
    typer.Option("--coordinator", metavar="HOST:PORT", help="Where process 0 of several listens (with jax)."),
]
ProcessesOption = Annotated[int | None, typer.Option("--processes", help="How many processes train together.")]
ProcessOption = Annotated[int | None, typer.Option("--process", help="Which of them this one is, from 0.")]


def execution_of(mesh: str | None, precision: str | None, *, scan: bool, remat: bool, rules: str | None = None) -> Any:
    """Return how the engine jax computes a new run; None for other engines, which have none of these settings."""
    if engine() != "jax":
        given = {"--mesh": mesh, "--precision": precision, "--scan": scan, "--remat": remat, "--rules": rules}
        wrong = [name for name, value in given.items() if value not in (None, False)]
        if wrong:
            raise ConfigError(f"{wrong[0]} is a setting of the engine jax", hint="add --engine jax")
        return None
    import jax

    from ..mesh.rules import own_rules

    shape = MeshShape(data=jax.device_count()) if mesh is None else MeshShape.parse(mesh)
    own = () if rules is None else own_rules(rules)
    return Execution(precision=precision or "float32", mesh=shape, scan=scan, remat=remat, rules=own)


@contextlib.contextmanager
def joined(coordinator: str | None, processes: int | None, process: int | None) -> Iterator[Any]:
    """Join the other processes of a run, if there are any, and watch over them inside a `with` block."""
    from ..cluster.launch import find_cluster, start

    if engine() != "jax":
        if any(given is not None for given in (coordinator, processes, process)):
            raise ConfigError("several processes train together under JAX only", hint="add --engine jax")
        yield None
        return
    with start(find_cluster(coordinator=coordinator, processes=processes, process=process)) as watch:
        yield watch


def _go_on_with(began: str | None, asked: str | None) -> None:
    """Use the engine that a run began with, unless another is asked for, which resuming then refuses or notes."""
    if began is not None and asked is None and not os.environ.get(VARIABLE):
        with contextlib.suppress(ConfigError):  # it may not be there on this machine
            set_engine(began)


def use_engine_of(run: Any, asked: str | None, mesh: str | None) -> None:
    """Go on with the engine that a run began with; None: there is no run yet."""
    if run is None:
        return
    if not run.under_jax:
        if asked == "jax" or mesh is not None:
            raise ConfigError(
                f"{run.folder} was not started with the engine jax", hint="go on without --engine, --mesh"
            )
        _go_on_with(None if run.record is None else run.record.engine, asked)
        return
    if asked not in (None, "jax"):
        raise ConfigError(f"{run.folder} was started with the engine jax", hint="go on without --engine")
    set_engine("jax")
