"""Shell completion by click: what the Tab key offers, and the files by which a shell learns to ask.

Importing a command takes longer than anyone waits for a Tab. So a cache holds the parameters of all commands and the
names of settings, until a file of the package changes: completing reads this cache and lists folders.
"""

import json
import os
import shlex
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from ..errors import CheckpointError, ConfigError
from ..files import explained
from ..registry import SUMMARIES
from ..weights.registry import REGISTRY, cache_folder, resolve

LoadAll = Callable[[], dict[str, click.Command]]
"""Imports all commands."""

PROGRAM, VARIABLE = "glassformer", "_GLASSFORMER_COMPLETE"
SHELLS = {"bash": ".bashrc", "zsh": ".zshrc", "fish": None}
"""Shells that can complete, and the file that they read when they start, where it must name the script."""
ENGINES, CHECKPOINTS = ("cpu", "numpy", "jax"), ("best", "latest")
RUNS = "runs"
# A setting is followed by its value, not by a space; zsh may not have loaded its completion yet.
_BASH = ("    return 0", "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n    return 0")
_ZSH = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"


def skeleton(name: str, load_all: LoadAll) -> click.Command:
    """Return a command with the parameters and completions of another one, without importing that."""
    known = _known(load_all)
    return click.Command(name, params=[_parameter(one, known) for one in known["commands"][name]])


def script(shell: str) -> str:
    """Return the lines by which a shell completes; without a name, those of the shell in use."""
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        fact = f"{chosen or 'this shell'} cannot be completed"
        raise ConfigError(fact, hint=f"name one of these: {', '.join(SHELLS)}")
    found = get_completion_class(chosen)
    assert found is not None
    text = found(click.Command(PROGRAM), {}, PROGRAM, VARIABLE).source()
    return _ZSH + text if chosen == "zsh" else text.replace(*_BASH) if chosen == "bash" else text


def install(shell: str, load_all: LoadAll) -> list[str]:
    """Write the script of a shell where it finds it; return what was written, and how to undo it."""
    text = script(shell)
    chosen = shell or Path(os.environ["SHELL"]).name
    startup = SHELLS[chosen]
    base = ("XDG_DATA_HOME", ".local/share") if startup else ("XDG_CONFIG_HOME", ".config")
    folder = Path(os.environ.get(base[0]) or Path.home() / base[1])
    path = folder / PROGRAM / f"completion.{chosen}" if startup else folder / "fish/completions" / f"{PROGRAM}.fish"
    said, undo = [f"wrote {path}"], f"to undo it, remove {path}"
    with explained(path, CheckpointError, "check its permissions, or use --show-completion", "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if startup:
            line = f"source {shlex.quote(str(path))}  # completion of {PROGRAM}"
            file = Path((chosen == "zsh" and os.environ.get("ZDOTDIR")) or Path.home()) / startup
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            if line not in before.splitlines():
                gap = "" if before.endswith("\n") or not before else "\n"
                file.write_text(f"{before}{gap}{line}\n", encoding="utf-8")
            said.append(f"{file} reads it: {line}")
            undo += f", and that line from {file}"
    _known(load_all)
    return [*said, "it completes in every new shell", undo]


def _known(load_all: LoadAll) -> dict[str, Any]:
    """Return what the cache holds, collected anew if a file of the package has changed."""
    package = Path(__file__).resolve().parents[1]
    key = f"{package} {max(file.stat().st_mtime_ns for file in package.rglob('*.py'))}"
    file = cache_folder() / "completion.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["key"] == key:
            return dict(found)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = {"key": key, **_collect(load_all)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(file)
    except OSError:
        pass  # collected again next time
    return found


def _collect(load_all: LoadAll) -> dict[str, Any]:
    """Import all commands, and return their parameters and what is listed elsewhere."""
    from ..models import PRESETS
    from ..runs.settings import TOPICS, groups_of
    from .look_views import VIEWS

    names = {
        topic: [one.name for group in groups_of(topic) for one in group.settings] for topic in (*SUMMARIES, "model")
    }
    commands = {name: [_fields(one) for one in command.params] for name, command in load_all().items()}
    lists = {"presets": list(PRESETS), "topics": list(TOPICS), "views": list(VIEWS)}
    return {"commands": commands, "settings": names, **lists}


def _fields(one: click.Parameter) -> dict[str, Any]:
    metavar = one.metavar or ""
    place = "dir" if metavar in ("DIR", "FOLDER") else "file" if isinstance(one.type, click.Path) else None
    if any(word in metavar for word in ("FILE", "PATH")):
        place = "file"
    fields = {"name": one.name, "nargs": one.nargs, "place": place}
    if isinstance(one, click.Option):
        names = [f"{opt}/{other}" for opt, other in zip(one.opts, one.secondary_opts, strict=False)] or one.opts
        fields |= {"opts": names, "help": one.help, "is_flag": one.is_flag, "multiple": one.multiple}
    return fields


def _parameter(fields: dict[str, Any], known: dict[str, Any]) -> click.Parameter:
    complete = partial(_complete, fields=fields, known=known)
    name, nargs = str(fields["name"]), fields["nargs"]
    if "opts" not in fields:
        return click.Argument([name], nargs=nargs, required=False, shell_complete=complete)
    switch = {"is_flag": True} if fields["is_flag"] else {"multiple": fields["multiple"], "nargs": nargs}
    return click.Option([name, *fields["opts"]], help=fields["help"], shell_complete=complete, **switch)


def _complete(
    ctx: click.Context, _: click.Parameter, typed: str, *, fields: dict[str, Any], known: dict[str, Any]
) -> list[CompletionItem]:
    """Return what a parameter may be, by its name; paths where nothing else is known."""
    tasks = [(name, line) for name, line in SUMMARIES.items()]
    pulled = [(name, entry.title) for name, entry in REGISTRY.items() if resolve(name) is not None]
    offers: dict[str, Callable[[], Iterable[Any]]] = {
        "model": lambda: [*pulled, *_runs(typed), *(known["presets"] if ctx.info_name in ("params", "plan") else ())],
        "source": lambda: [*pulled, *_runs(typed)],
        "run": lambda: _runs(typed),
        "runs": lambda: _runs(typed),
        "resume": lambda: _runs(typed),
        "task": lambda: tasks,
        "topic": lambda: [*tasks, *known["topics"], *known["presets"]],
        "preset": lambda: known["presets"],
        "name": lambda: [(name, entry.title) for name, entry in REGISTRY.items()],
        "view": lambda: known["views"],
        "engine": lambda: ENGINES,
        "checkpoint": lambda: CHECKPOINTS,
        "settings": lambda: [f"{key}=" for key in known["settings"].get(ctx.params.get("task") or "model", ())],
    }
    pairs = [(one, None) if isinstance(one, str) else one for one in offers.get(str(fields["name"]), list)()]
    found = [CompletionItem(value, help=line) for value, line in pairs if value.startswith(typed)]
    is_place = fields["place"] or fields["name"] in ("model", "source", "run", "runs", "resume", "task", "topic")
    return found or ([CompletionItem(typed, type=fields["place"] or "file")] if is_place else [])


def _runs(typed: str) -> list[str]:
    """Return the run folders beside what is typed; those in `runs` if it names no folder."""
    parent = Path(typed.rpartition("/")[0] or "/") if "/" in typed else Path(RUNS)
    try:
        return sorted(str(file.parent) for file in parent.glob("*/config.json"))
    except OSError:
        return []
