"""`glassformer models`: published models that can be had here, those that are, and what one can build."""

from typing import Any

from ..models import PRESETS
from ..weights.registry import REGISTRY, Entry, cache_folder, resolve, size_of
from .output import JsonOption, bytes_text, console, print_json, table


def models(json: JsonOption = False) -> None:
    """List the models that can be pulled, those that are there, and the presets."""
    found = [_facts(entry) for entry in REGISTRY.values()]
    if json:
        print_json({"cache": str(cache_folder()), "models": found, "presets": list(PRESETS)})
        return
    out = console()
    shown = table("model", "what it is", ">size", "is here")
    for row in found:
        shown.add_row(row["name"], row["title"], bytes_text(row["size"]), "no" if row["path"] is None else "yes")
    out.print(shown)
    # On lines of their own, which no column cuts: one copies them.
    for row in found:
        where = f"in {row['path']}" if row["path"] else f"not here yet: glassformer pull {row['name']}"
        out.print(f"{row['name']}: {where}", markup=False)
    out.print(f"presets, to build and train: {', '.join(PRESETS)}", soft_wrap=False)
    out.print("what one costs: glassformer params PRESET")


def _facts(entry: Entry) -> dict[str, Any]:
    path = resolve(entry.name)
    fields = {name: getattr(entry, name) for name in ("name", "title", "package", "version")}
    size, where = (entry.size, None) if path is None else (size_of(path), str(path))
    return {**fields, "size": size, "path": where}
