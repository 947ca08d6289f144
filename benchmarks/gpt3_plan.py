"""GPT-3 on 1,024 devices of 80 GB: what each of them holds, and sends, for several meshes.

    python benchmarks/gpt3_plan.py                 a table, at once: nothing is allocated
    python benchmarks/gpt3_plan.py --json          one JSON object per mesh
    python benchmarks/gpt3_plan.py --figure FILE   also a picture, such as docs/images/gpt3_plan.png

A step reads 1,024 sequences of 2,048 tokens, as many microbatches as it takes for a device to see one at a time. The
vocabulary is padded from 50,257 to 50,304 ids, which 8 devices can share. `glassformer plan` prints one of the rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from glassformer.mesh.plan import Plan, plan
from glassformer.mesh.shape import MeshShape
from glassformer.models import preset
from glassformer.plots import memory_bars, save

BATCH = 1024
LIMIT = 80 * 1000**3
CASES = [
    ("data=1024", False),
    ("data=128,tensor=8", False),
    ("data=16,fsdp=8,tensor=8", False),
    ("data=16,fsdp=8,tensor=8", True),
    ("fsdp=1024", False),
    ("fsdp=1024", True),
    ("fsdp=128,tensor=8", False),
    ("fsdp=128,tensor=8", True),
]


def plans() -> list[Plan]:
    """Return the plan of every case."""
    config = preset("gpt3", vocab=50304)
    found = []
    for text, remat in CASES:
        mesh = MeshShape.parse(text)
        parts = BATCH // mesh.replicas
        found.append(plan(config, mesh, batch=BATCH, accumulate=parts, remat=remat, device_memory=LIMIT))
    return found


def show(found: list[Plan]) -> None:
    """Print the table."""
    print(f"{'mesh':28}{'remat':>7}{'memory':>12}{'fits':>6}{'sent per step':>16}")
    for row in found:
        memory, sent = f"{row.total / 1e9:,.1f} GB", f"{row.sent / 1e9:,.0f} GB"
        remat, fits = ("yes" if answer else "no" for answer in (row.remat, row.fits))
        print(f"{row.mesh!s:28}{remat:>7}{memory:>12}{fits:>6}{sent:>16}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object per mesh")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw a picture")
    asked = parser.parse_args()
    found = plans()
    if asked.json:
        for row in found:
            print(json.dumps(row.to_dict()))
    else:
        show(found)
    if asked.figure is not None:
        save(memory_bars(found, title="GPT-3 on 1,024 devices: memory of each"), asked.figure)


if __name__ == "__main__":
    main()
