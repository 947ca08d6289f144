"""Shell completion by click: what the Tab key offers, and the files by which a shell learns to ask.

The type of a parameter declares what it offers (`Offers` of options.py). Importing a command takes longer than anyone
waits for a Tab. So a cache holds the parameters of all commands, what they offer, and the names of settings, until a
file of the package changes: completing reads this cache and lists runs and pulled models.
"""

import json
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from ..core.errors import CheckpointError, ConfigError
from ..core.files import explained
from ..core.registry import SUMMARIES
from ..weights.catalog import CATALOG, cache_folder, resolve
from .commands import declarations, load_command

PROGRAM = "glassformer"
PATHS = ("file", "dir")
SHELLS = {
    "bash": (f"~/.local/share/{PROGRAM}/completion.bash", "~/.bashrc"),
    "zsh": (f"~/.local/share/{PROGRAM}/completion.zsh", f"{os.environ.get('ZDOTDIR', '~')}/.zshrc"),
    "fish": (f"~/.config/fish/completions/{PROGRAM}.fish", None),
}
"""Where the script of each shell is, and the file that must name it, if there is one."""
# A setting is followed by its value, not by a space; zsh may not have loaded its completion yet.
_BASH = ("    return 0", "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n    return 0")
_ZSH = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"


def script(shell: str) -> str:
    """Return the lines by which a shell completes."""
    found = get_completion_class(_chosen(shell))
    assert found is not None
    text = found(click.Command(PROGRAM), {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    return (_ZSH if _chosen(shell) == "zsh" else "") + text.replace(*_BASH)


def _chosen(shell: str) -> str:
    """Return the shell that was named, or else the one in use."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise ConfigError(f"{name or 'this shell'} cannot be completed", hint=f"name one of these: {', '.join(SHELLS)}")
    return name


def install(shell: str) -> list[str]:
    """Write the script of a shell where it finds it; return what was written, and how to undo it."""
    path, startup = (None if one is None else Path(one).expanduser() for one in SHELLS[_chosen(shell)])
    assert path is not None
    said, undo = [f"wrote {path}"], f"to undo it, remove {path}"
    with explained(path, CheckpointError, "check its permissions, or use --show-completion", "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(shell), encoding="utf-8")
        if startup is not None:
            line = f"source {shlex.quote(str(path))}  # completion of {PROGRAM}"
            lines = startup.read_text(encoding="utf-8").splitlines() if startup.exists() else []
            if line not in lines:
                startup.write_text("\n".join([*lines, line, ""]), encoding="utf-8")
            said.append(f"{startup} reads it: {line}")
            undo += f", and that line from {startup}"
    _known()
    return [*said, "it completes in every new shell", undo]


def skeleton(name: str) -> click.Command:
    """Return a command with the parameters and completions of another one, without importing that."""
    known = _known()
    return _command(known["commands"][name], known["settings"])


def _command(fields: dict[str, Any], settings: dict[str, list[str]]) -> click.Command:
    params = [_parameter(one, settings) for one in fields["params"]]
    if not fields["commands"]:
        return click.Command(fields["name"], params=params, short_help=fields["help"])
    parts = {name: _command(part, settings) for name, part in fields["commands"].items()}
    return click.Group(fields["name"], params=params, commands=parts)


def _parameter(fields: dict[str, Any], settings: dict[str, list[str]]) -> click.Parameter:
    kind = click.Option if "help" in fields else click.Argument

    def complete(ctx: click.Context, _: Any, typed: str) -> list[CompletionItem]:
        """Return what is offered; paths only where nothing else is."""
        live: dict[str, Callable[[str], dict[str, str]]] = {
            "runs": _runs,
            "models": _models,
            "settings": partial(_settings, settings, ctx),
        }
        found = [
            CompletionItem(value, help=line)
            for name, listed, meaning in fields["offers"] if listed not in PATHS
            for value, line in (live[listed](typed) if listed in live else {name: meaning}).items()
            if value.startswith(typed)
        ]  # fmt: skip
        return found or [CompletionItem(typed, type=listed) for _, listed, _ in fields["offers"] if listed in PATHS]

    declared = {name: value for name, value in fields.items() if name != "offers"}
    return kind(required=False, shell_complete=complete, **declared)


def _models(typed: str) -> dict[str, str]:
    """Return the pulled models with their titles, and the runs."""
    return {name: entry.title for name, entry in CATALOG.items() if resolve(name) is not None} | _runs(typed)


def _settings(settings: dict[str, list[str]], ctx: click.Context, _: str) -> dict[str, str]:
    """Return the settings of the task that is named, or else of a model."""
    return {f"{key}=": "" for key in settings.get(ctx.params.get("task") or "model", ())}


def _runs(typed: str) -> dict[str, str]:
    """Return the run folders beside what is typed; those in `runs` if it names no folder."""
    parent = Path(typed.rpartition("/")[0] or "/") if "/" in typed else Path("runs")
    return dict.fromkeys(sorted(str(file.parent) for file in parent.glob("*/config.json")), "")


# --- the cache -------------------------------------------------------------------------------------------------------


def _known() -> dict[str, Any]:
    """Return what the cache holds, collected anew if a file of the package has changed."""
    package, file = Path(__file__).resolve().parents[1], cache_folder() / "completion.json"
    key = f"{package} {max(one.stat().st_mtime_ns for one in package.rglob('*.py'))}"
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if found.get("key") == key:
            return found
    found = {"key": key, **_collect()}
    with suppress(OSError):  # then it is collected again next time
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(file)
    return found


def _collect() -> dict[str, Any]:
    """Import all commands, and return their parameters and the names of settings."""
    from ..runs.settings import groups_of

    settings = {one: [setting.name for group in groups_of(one) for setting in group.settings]
                for one in (*SUMMARIES, "model")}  # fmt: skip
    return {"commands": {name: _described(load_command(name)) for name in declarations()}, "settings": settings}


def _described(command: click.Command) -> dict[str, Any]:
    """Return the parameters of a command, and its commands if it is a group."""
    ctx = click.Context(command)
    inner = command.commands if isinstance(command, click.Group) else {}
    return {
        "name": command.name,
        "help": command.get_short_help_str(),
        "params": [_fields(one, ctx) for one in command.params],
        "commands": {name: _described(part) for name, part in inner.items()},
    }


def _fields(one: click.Parameter, ctx: click.Context) -> dict[str, Any]:
    offers = [(item.value, item.type, item.help) for item in one.shell_complete(ctx, "")]
    if not isinstance(one, click.Option):
        return {"param_decls": [one.name], "nargs": one.nargs, "offers": offers}
    names = [f"{opt}/{other}" for opt, other in zip(one.opts, one.secondary_opts, strict=False)] or one.opts
    kind = {"is_flag": True} if one.is_flag else {"multiple": one.multiple, "nargs": one.nargs}
    return {"param_decls": [one.name, *names], "help": one.help, "offers": offers, **kind}
