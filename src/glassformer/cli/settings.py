"""`glassformer settings` and `tasks`, and settings given as KEY=VALUE."""

import inspect
import json as json_module
from collections.abc import Sequence
from dataclasses import MISSING, asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import ConfigError
from ..core.registry import SUMMARIES
from ..core.settings import check_known
from .commands import command
from .options import MODEL, Offers, json_option, trust_option
from .output import console, log, print_json, print_table

if TYPE_CHECKING:
    from ..core.settings import Setting
    from ..runs.settings import Group

COLUMNS = ("name", "default", "takes", "meaning")
LONGEST_DEFAULT = 40

_WORDS = {"none": None, "true": True, "yes": True, "false": False, "no": False}


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read settings; a value is a number, true, false, none, JSON, or else text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"cannot read the setting {pair!r}", hint="write it as KEY=VALUE, such as width=64")
        if name in settings:
            raise ConfigError(f"the setting {name!r} is given twice", hint="give it once")
        settings[name] = parse_value(value)
    return settings


def parse_value(text: str) -> Any:
    """Read a value: a number, true, false, none, JSON, or else text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json_module.loads(text)
    except ValueError:
        return text
    except RecursionError:
        fact = f"the value {text[:20]}… is nested too deeply"
        raise ConfigError(fact, hint="no setting takes such a value") from None


def _topics() -> dict[str, str]:
    from ..models import PRESETS
    from ..runs.settings import TOPICS

    return SUMMARIES | dict.fromkeys([*TOPICS, *PRESETS], "")


@command("Train", "glassformer settings", "glassformer settings text")
@click.argument(
    "topic",
    type=Offers("file", names=_topics),
    metavar="[TASK|PRESET|GROUP|FILE]",
    required=False,
    help="Whose settings: a task's, a preset's, recipe, model, lora or sampling; or a Python file's tasks.",
)
@click.option(
    "--from", "source", type=MODEL, metavar="MODEL", help="Start from a trained model: the settings of fine-tuning it."
)
@click.option("--lora", is_flag=True, help="With --from: the settings of training low-rank adapters.")
@json_option
@trust_option
def settings(topic: str | None, source: str | None, lora: bool, json: bool) -> None:
    """List every setting of a task, a preset, the recipe or sampling: default, choices, meaning."""
    from ..runs.settings import groups_of

    if lora and source is None:
        raise ConfigError("--lora needs a model to start from", hint="name one with --from")
    if topic is None:
        if source is not None:
            raise ConfigError("--from needs a task", hint="name one: glassformer settings text --from MODEL")
        _overview(json=json)
        return
    groups = groups_of(topic) if source is None else _of_fine_tuning(topic, source, lora=lora)
    if json:
        print_json({group.title: [_fields(one) for one in group.settings] for group in groups})
        return
    if not console().is_terminal:
        rows = [(group.title, *_cells(one)) for group in groups for one in group.settings]
        print_table(("group", *COLUMNS), rows)
        return
    for group in groups:
        print_table(COLUMNS, [_cells(one) for one in group.settings], title=group.title)
        log(f"given as: {group.how}\n")


def _cells(one: "Setting") -> tuple[str, ...]:
    return one.name, default_text(one.default), one.takes, one.meaning


def _of_fine_tuning(task: str, source: str, *, lora: bool) -> "list[Group]":
    from ..api.loading import load_config
    from ..data import TASKS
    from ..runs.planning import fine_tuning_groups

    check_known("there is no task", task, TASKS)
    return fine_tuning_groups(task, source, load_config(source), adapters=lora)


def _overview(*, json: bool) -> None:
    from ..models import PRESETS
    from ..runs.settings import TOPICS

    if json:
        print_json({"tasks": list(SUMMARIES), "groups": TOPICS, "presets": list(PRESETS)})
        return
    rows = [(f"glassformer settings {name}", what) for name, what in TOPICS.items()]
    rows += [
        ("glassformer settings TASK", "all of these as a task begins with them, and its own: " + ", ".join(SUMMARIES)),
        ("glassformer settings FILE.py", "those of the tasks in your own file"),
        ("glassformer settings PRESET", "a known model's: " + ", ".join(PRESETS)),
        ("glassformer settings ARCHITECTURE", "encoder, decoder or encoder-decoder"),
    ]
    print_table(("command", "lists"), rows)


def _fields(one: "Setting") -> dict[str, Any]:
    """Return a setting as JSON shows it; one that must be given has no default."""
    default = asdict(one.default) if is_dataclass(one.default) and not isinstance(one.default, type) else one.default
    return {"name": one.name, **({} if default is MISSING else {"default": default}), "takes": one.takes,
            "meaning": one.meaning}  # fmt: skip


def default_text(value: Any) -> str:
    """Write a default as it is typed; a long list is shortened."""
    if value is MISSING:
        return "must be given"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    text = value if isinstance(value, str) else json_module.dumps(value, ensure_ascii=False)
    if len(text) > LONGEST_DEFAULT and isinstance(value, list | tuple) and len(value) > 3:
        return f"{', '.join(map(str, value[:3]))}, … ({len(value)} in all)"
    return text


@command("Train", "glassformer tasks")
@click.argument("file", type=Offers("file"), required=False, help="List the tasks in this Python file instead.")
@json_option
def tasks(file: str | None, json: bool) -> None:
    """List the tasks to train on."""
    listed = SUMMARIES
    if file is not None:
        from ..data import TASKS, import_file  # loads the modules that build tasks

        listed = {name: (inspect.getdoc(TASKS[name]) or "").partition("\n")[0] for name in import_file(file).tasks}
    if json:
        print_json(listed)
    else:
        print_table(("task", "learns to"), listed.items())
