"""Train with every bug of the museum, time the check that catches it, and write `src/glassformer/bugs/curves.json`.

    python benchmarks/museum.py

Every exhibit is trained for 300 steps with three seeds, beside the same without the bug, on the engine numpy with one
thread each. The report names what training shows of each bug, and how long its check takes.
"""

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from glassformer.bugs import Curves, museum
from glassformer.bugs.training import CURVES, SETUPS, train_curves


def rounded(curves: Curves) -> list[list[float | None]]:
    """Return the numbers of some curves, as JSON knows them."""
    return [[round(float(x), 3) if x == x else None for x in row] for row in curves.loss]


def right(setup: str) -> tuple[str, Curves]:
    return setup, train_curves(setup)


def wrong(name: str) -> tuple[str, Curves | None, float]:
    exhibit = museum()[name]
    exhibit.run_check()  # makes what both checks need
    start = time.perf_counter()
    assert not exhibit.run_check().ok, name
    seconds = time.perf_counter() - start
    return name, None if exhibit.setup == "none" else exhibit.train(), seconds


def main() -> None:
    with ProcessPoolExecutor() as pool:
        others = [pool.submit(wrong, name) for name in museum()]
        kept = dict(pool.map(right, SETUPS))
        found = [other.result() for other in others]
    for name, curves, seconds in found:
        effect = "" if curves is None else curves.effect(kept[museum()[name].setup])
        print(f"{name:22} {effect:10} its check takes {seconds:5.2f} s")
    written = {
        "right": {setup: rounded(curves) for setup, curves in kept.items()},
        "wrong": {name: rounded(curves) for name, curves, _ in found if curves is not None},
        "seconds": {name: round(seconds, 2) for name, _, seconds in found},
    }
    CURVES.write_text(json.dumps(written) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
