"""Shell completion by click: what the Tab key offers, and the files by which a shell learns to ask.

Importing a command takes longer than anyone waits for a Tab. So a cache holds the parameters of all commands and the
names of settings, until a file of the package changes: completing reads this cache and lists folders.
"""

import json
import os
import shlex
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
    return _command(name, known["commands"][name], known)


def _command(name: str, fields: dict[str, Any], known: dict[str, Any]) -> click.Command:
    params = [_parameter(one, known) for one in fields["params"]]
    if "commands" not in fields:
        return click.Command(name, params=params, short_help=fields["help"])
    parts = {one: _command(one, of_one, known) for one, of_one in fields["commands"].items()}
    return click.Group(name, params=params, commands=parts)


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
    """Import all commands, and return their parameters and what is listed elsewhere."""
    from ..bugs import museum
    from ..labs import list_labs
    from ..models import PRESETS
    from ..runs.settings import TOPICS, groups_of
    from ..studies import studies
    from .look_views import VIEWS

    names = {one: [setting.name for group in groups_of(one) for setting in group.settings] for one in SUMMARIES}
    names["model"] = [setting.name for group in groups_of("model") for setting in group.settings]
    commands = {name: _described(command) for name, command in ((name, load_command(name)) for name in declarations())}
    return {
        "commands": commands, "settings": names, "presets": [*PRESETS], "topics": [*TOPICS], "views": [*VIEWS],
        "labs": {lab.name: lab.title for lab in list_labs()},
        "names": {
            "bugs": {name: exhibit.title for name, exhibit in museum().items()},
            "study": {name: study.question for name, study in studies().items()},
        },
    }  # fmt: skip


def _described(command: click.Command) -> dict[str, Any]:
    """Return the parameters of a command, and its commands if it is a group."""
    fields: dict[str, Any] = {
        "params": [_fields(one) for one in command.params],
        "help": command.get_short_help_str(),
    }
    if isinstance(command, click.Group):
        fields["commands"] = {name: _described(part) for name, part in command.commands.items()}
    return fields


def _fields(one: click.Parameter) -> dict[str, Any]:
    is_path = isinstance(one.type, click.Path) or one.metavar in ("FILE", "PATH")
    fields: dict[str, Any] = {"param_decls": [one.name], "nargs": one.nargs}
    fields["place"] = "dir" if one.metavar in ("DIR", "FOLDER") else "file" if is_path else None
    if isinstance(one, click.Option):
        names = [f"{opt}/{other}" for opt, other in zip(one.opts, one.secondary_opts, strict=False)] or one.opts
        fields |= {"param_decls": [one.name, *names], "help": one.help}
        fields |= {"is_flag": True} if one.is_flag else {"multiple": one.multiple}
    return fields


def _parameter(fields: dict[str, Any], known: dict[str, Any]) -> click.Parameter:
    settings = {name: value for name, value in fields.items() if name != "place"}
    kind = click.Option if "help" in fields else click.Argument
    return kind(required=False, shell_complete=partial(_complete, fields["place"], known), **settings)


def _complete(
    place: str | None, known: dict[str, Any], ctx: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Return what a parameter may be, by its name; paths where nothing else is known."""
    titles = {name: entry.title for name, entry in CATALOG.items()}
    runs = dict.fromkeys(_runs(typed), "")
    models = {name: title for name, title in titles.items() if resolve(name) is not None} | runs
    presets, topics = dict.fromkeys(known["presets"], ""), dict.fromkeys(known["topics"], "")
    keys = known["settings"].get(ctx.params.get("task") or "model", ())
    places = {"model": models, "source": models, "run": runs, "runs": runs, "resume": runs, "task": SUMMARIES}
    places["lab"] = known["labs"]
    offers: dict[str, dict[str, str]] = places | {
        "topic": SUMMARIES | topics | presets,
        "preset": presets,
        "name": known["names"].get(ctx.info_name, titles),
        "view": dict.fromkeys(known["views"], ""),
        "engine": dict.fromkeys(("cpu", "numpy", "jax"), ""),
        "checkpoint": dict.fromkeys(("best", "latest"), ""),
        "settings": dict.fromkeys((f"{key}=" for key in keys), ""),
    }
    counts = ctx.info_name in ("params", "plan") and parameter.name == "model"  # what needs no weights
    offered = offers.get(parameter.name or "", {}) | (presets if counts else {})
    found = [CompletionItem(value, help=line) for value, line in offered.items() if value.startswith(typed)]
    is_file = parameter.name in places or (ctx.info_name, parameter.name) == ("study", "name")
    place = place or ("file" if is_file else None)
    return found or ([] if place is None else [CompletionItem(typed, type=place)])


def _runs(typed: str) -> list[str]:
    """Return the run folders beside what is typed; those in `runs` if it names no folder."""
    parent = Path(typed.rpartition("/")[0] or "/") if "/" in typed else Path("runs")
    return sorted(str(file.parent) for file in parent.glob("*/config.json"))
