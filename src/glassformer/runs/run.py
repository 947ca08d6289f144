"""A run folder: what was trained, how, and what came of it; docs/guides/runs.md lists its files.

Where only adapters are trained, beside the frozen parameters of another model, the checkpoints hold the adapters alone.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config import EncoderConfig, TransformerConfig, config_from_dict
from ..core import dispatch
from ..core.arrays import Tree, widen
from ..core.documents import as_read, damaged, explaining_damage
from ..core.errors import CheckpointError, ConfigError, DataError, GlassformerError
from ..core.execution import PLAIN, Execution, joined, separated
from ..core.quantized import FORMS
from ..core.registry import check_stored
from ..core.settings import check_options
from ..core.tree import check_same, rebuilt, tree_map, unflatten
from ..data import TASKS, CustomFile, Lexicon, Task, build_task
from ..data.tasks import check_registered
from ..engines.mesh.rules import check_execution
from ..models import Model, build
from ..text import tokenizer_from_dict
from ..training.checkpoint import BEST, LATEST, checkpoint_path, load_checkpoint
from ..training.peft import Adapter, with_adapter
from ..training.recipe import Recipe
from ..training.trainable import EVERYTHING, HEAD, LoRA, Parametrization, leaves_only
from ..training.trainer import COUNTERS, TrainingState, start
from ..weights.loaded_model import END, START, LoadedModel
from ..weights.sentence import with_classes
from ..weights.stores import Store, following, is_run, locate, named_base, split_adapter, store_at
from .custom_files import load_custom_file, load_custom_files, takes_lexicon
from .folder import CONFIG, FORMAT, METRICS, read_config, read_metrics
from .provenance import Base, Provenance, data_provenance, fingerprint


class Ready(NamedTuple):
    """Parts of a run that are in memory already, and are not built or read again; none of a run just opened.

    params   what is trained, before the first step
    model    of the user's own class, which is trained in the place of the config's
    """

    task: Task | None = None
    params: Tree | None = None
    parametrization: Parametrization | None = None
    model: Model | None = None


@dataclass(frozen=True)
class TrainingRun:
    """The settings of a training, as its config.json holds them; without a folder, that is named like the task."""

    folder: Path
    task_name: str
    task_options: dict[str, Any]
    config: TransformerConfig
    recipe: Recipe
    provenance: Provenance  # where and with what it began
    tokenizer: dict[str, Any] = field(default_factory=dict)
    target_tokenizer: dict[str, Any] | None = None
    base: Base | None = None
    execution: Execution = PLAIN  # how its model runs
    under_jax: bool = False  # whether the engine jax computes it, else one of the host
    custom_files: tuple[CustomFile, ...] = ()  # files with its task or parts of its model
    labels: tuple[str, ...] = ()  # the names of its classes
    ready: Ready = field(default=Ready(), compare=False, repr=False)

    @property
    def model(self) -> Model:
        """The model that is trained, as every engine can run it."""
        self._import_files()
        return self.build(PLAIN.replace(tile=self.execution.tile) if self.under_jax else self.execution)

    def build(self, execution: Execution) -> Model:
        """Return the model that is trained, as it runs with this execution."""
        if self.ready.model is None:
            return build(self.config, execution)
        return replace(self.ready.model, config=self.config, execution=execution)  # type: ignore[type-var]

    @property
    def engine(self) -> dispatch.Engine:
        """The engine that computes it."""
        return engine_of(under_jax=self.under_jax)

    def computing(self) -> Callable[[], Any]:
        """Return the context in which the cores compute as they did when the run began."""
        return contextlib.nullcontext if self.under_jax else self.provenance.computing()

    def check(self) -> None:
        """Refuse devices that are missing, and a model or batches that cannot be split over them."""
        if self.under_jax:
            check_execution(self.config, self.execution, batch=self.recipe.batch, accumulate=self.recipe.accumulate)

    def to_dict(self) -> dict[str, Any]:
        """Return what config.json holds."""
        return {
            "format": FORMAT,
            "task": {"name": self.task_name, "options": self.task_options},
            "model": {**self.config.to_dict(), **({} if self.under_jax else joined(self.execution))},
            "recipe": self.recipe.to_dict(),
            "tokenizer": self.tokenizer,
            "target_tokenizer": self.target_tokenizer,
            **({} if self.base is None else {"base": self.base.to_dict()}),
            **({"jax": self.execution.to_dict()} if self.under_jax else {}),
            **({"own": [file.to_dict() for file in self.custom_files]} if self.custom_files else {}),
            **({"labels": list(self.labels)} if self.labels else {}),
            "record": self.provenance.to_dict(),
        }

    def task(self) -> Task:
        """Return the task: its data, tokenizers and metric; refuse data that has another vocabulary by now."""
        if self.ready.task is not None:
            return self.ready.task
        self._import_files()
        check_registered(self.task_name, self.folder)
        options = dict(self.task_options)
        check_options(TASKS[self.task_name], options)
        if self.base is not None and takes_lexicon(self.task_name):
            options["lexicon"] = replace(self.base.lexicon(self.tokenizer, self.target_tokenizer), labels=self.labels)
        elif self.labels and takes_lexicon(self.task_name):  # a default that has changed would fit another tokenizer
            options["lexicon"] = Lexicon(tokenizer_from_dict(self.tokenizer), labels=self.labels)
        task = build_task(self.task_name, **options)
        if tokenizers_of(task) != (self.tokenizer, self.target_tokenizer):
            raise DataError(
                f"the data of {self.folder} has changed: its vocabulary is not the one this model was trained on",
                hint="restore the data, or train anew",
            )
        return task

    def _import_files(self) -> None:
        for file in self.custom_files:
            if file.loaded is None:
                load_custom_file(file, self.folder)

    def check_data(self) -> None:
        """Refuse data that differs from what the run began with, if the run has its hash."""
        known = self.provenance.data
        now = None if known is None else data_provenance(self.task_name, self.task_options.get("data"))
        if known is not None and now is not None and now.sha256 != known.sha256:
            raise DataError(
                f"the data of {self.folder} has changed: {known.source} is not what it was trained on",
                hint=f"restore what had SHA-256 {known.sha256[:12]}…, or train anew",
            )

    @property
    def lora(self) -> LoRA | None:
        """The adapters that are trained; None: all of the model is."""
        return None if self.base is None else self.base.lora

    def parametrization(self) -> Parametrization:
        """Return what is trained; for adapters, the base model is read."""
        if self.ready.parametrization is not None:
            return self.ready.parametrization
        whole = self._whole_parts()
        if self.base is None or not (self.base.lora or whole):
            return EVERYTHING
        return Parametrization(self._base_params(), self.base.lora, whole, self.base.source)

    def _whole_parts(self) -> tuple[str, ...]:
        """Return the parts that are trained as a whole beside a frozen model: a new head."""
        return (HEAD,) if self.base is not None and self.base.head and (self.lora or self.trains_head_alone) else ()

    @property
    def trains_head_alone(self) -> bool:
        """Whether all of the model is frozen but its head for classes."""
        return self.lora is None and leaves_only(self.recipe.freeze, HEAD, self.model)

    def _base_params(self) -> Tree:
        """Return the parameters of the base model, with its new head; refuse a base model that has changed."""
        assert self.base is not None
        with following(self.folder):
            base = read_base(named_base(self.base.source, self.folder))
        if self.base.head:
            base = with_classes(base, self.config.to_dict()["classes"], self.recipe.seed)
        if fingerprint(base.params) != self.base.sha256:
            raise CheckpointError(
                f"{self.base.source} is not the model that this run started from: its parameters differ",
                hint="restore it, or fine-tune anew",
            )
        check_same(base.params, self.model.specs())
        return base.params

    def load_params(self, name: str = BEST) -> Tree:
        """Return trained parameters of the model, adapters merged: the best, or the latest if there is no best yet."""
        return self.parametrization().effective(self.load_trained(name))

    def load_trained(self, name: str = BEST) -> Tree:
        """Return what was trained: the parameters of the model, or adapters."""
        if name == BEST and not checkpoint_path(self.folder, BEST).is_file():
            name = LATEST
        if name == LATEST and self.under_jax:
            dispatch.engines().gather(self.folder)  # the newest state may be in many files
        arrays = load_checkpoint(self.folder, name).arrays
        params = _part(arrays, "ema.average") or _part(arrays, "params")
        specs = self.trained_specs()
        check_same(params, specs)
        return rebuilt(specs, params)

    def first_params(self) -> Tree | None:
        """Return what is trained before the first step, where training starts from a model; None: it is drawn anew."""
        if self.ready.params is not None:
            return self.ready.params
        parametrization = self.parametrization()
        if parametrization.base is not None:
            return parametrization.first(self.recipe.seed)
        return None if self.base is None else self._base_params()

    def load_state(self, folder: Path | None = None, name: str = LATEST) -> TrainingState:
        """Return a state to continue from: the latest, or another one by its folder and its name."""
        arrays, meta = load_checkpoint(folder or self.folder, name)
        # Names and shapes are compared, so zeros will do.
        zeros = tree_map(lambda spec: np.zeros(spec.shape, np.float32), self.trained_specs())
        fresh = start(self.model, self.recipe, zeros)
        trees = {"params": fresh.params, "optimizer": fresh.optimizer, "ema": fresh.ema}
        check_same({part: _part(arrays, part) for part in trees}, trees)
        scaling = unflatten(_part(arrays, "scaling")) or None
        return TrainingState(**rebuilt(trees, arrays), scaling=scaling, **{name: meta[name] for name in COUNTERS})

    def trained_specs(self) -> Tree:
        """Return the shapes of what is trained."""
        return Parametrization(None, self.lora, self._whole_parts()).specs(self.model.specs())

    def metrics(self) -> list[dict[str, Any]]:
        """Read the metrics file; a last line cut off by a crash is left out."""
        return read_metrics(self.folder / METRICS)[0]


def engine_of(*, under_jax: bool) -> dispatch.Engine:
    """Return the engine of a run: JAX if it began on JAX, else the engine in use, or the default one if that is JAX."""
    if under_jax:
        return dispatch.engines().find("jax")
    chosen = dispatch.current()
    return chosen if chosen.library == "numpy" else dispatch.engines().find()


def open_run(folder: str | Path) -> TrainingRun:
    """Read a run folder; Python files that it was trained with run only if the user trusts them: see `custom_files`."""
    folder = Path(folder)
    content = read_config(folder)
    with explaining_damage(folder / CONFIG):
        files = load_custom_files(content, folder)
        chosen = {**content["recipe"], **content["model"]}
        check_stored(chosen, folder, CheckpointError, content["tokenizer"], content["target_tokenizer"])
        config = config_from_dict(content["model"])
        base = Base.from_dict(content["base"]) if "base" in content else None
        ids = [] if base is None else [token for token in (base.start_id, *base.end_ids) if token is not None]
        if not all(0 <= token < config.vocab for token in ids):
            raise ConfigError(f"of its start and end tokens {ids!r:.60}, some are not in the vocabulary")
        # Settings of execution may stand beside those of the model.
        execution = {
            name: value for name, value in content.get("jax", {}).items() if value != getattr(PLAIN, name, None)
        }
        return TrainingRun(
            folder=folder,
            task_name=content["task"]["name"],
            task_options=content["task"]["options"],
            config=config,
            recipe=Recipe.from_dict(content["recipe"]),
            provenance=Provenance.from_dict(content["record"]),
            tokenizer=content["tokenizer"],
            target_tokenizer=content["target_tokenizer"],
            base=base,
            execution=Execution.from_dict({**separated(content["model"])[1], **execution}),
            under_jax="jax" in content,
            custom_files=files,
            labels=tuple(content.get("labels", ())),
        )


def read_model(source: str | Path, *, blocks: bool = False) -> LoadedModel:
    """Read the model at a path, a pulled one by its name, or one of the hub; its parameters are as its files have them.

    blocks    matrices of a GGUF file stay in the blocks in which it stores them
    """
    path = locate(source)
    if (adapted := split_adapter(path)) is not None:
        return replace(with_adapter(read_model(adapted[0]), adapted[1]), source=str(source))
    return replace(store_at(path, [RUNS]).model(path, FORMS if blocks else ()), source=str(source))


def read_base(source: str) -> LoadedModel:
    """Read a model to train, its parameters in float32 or wider."""
    model = read_model(source)
    return replace(model, params=tree_map(widen, model.params))


def model_of_run(run: TrainingRun, checkpoint: str = BEST, *, params: Tree | None = None) -> LoadedModel:
    """Return what a run of our own trained; its tokenizer, or its base, says how texts start and end."""
    try:
        reader = tokenizer_from_dict(run.tokenizer)
        writer = None if run.target_tokenizer is None else tokenizer_from_dict(run.target_tokenizer)
    except GlassformerError as error:
        raise damaged(f"the tokenizer in {run.folder / CONFIG}", error.fact) from error
    if run.base is not None:
        start, ends, family = run.base.start_id, run.base.end_ids, run.base.family
    else:
        specials = (writer or reader).specials
        start, ends, family = specials.get(START), (specials[END],) if END in specials else (), ""
    lexicon = run.base is not None and takes_lexicon(run.task_name)
    labels = run.labels
    if not labels and isinstance(run.config, EncoderConfig):
        with contextlib.suppress(GlassformerError):  # its data may be gone
            labels = run.task().class_labels(run.config)
    adapter = None
    if params is None:
        parametrization, trained = run.parametrization(), run.load_trained(checkpoint)
        params = parametrization.effective(trained)
        adapter = Adapter.of(parametrization, trained, params)
    return LoadedModel(
        run.model,  # type: ignore[arg-type]
        params,
        adapter=adapter,
        tokenizer=reader,
        target_tokenizer=writer,
        start_id=start,
        end_ids=ends,
        chat_template=getattr(reader, "chat_template", None),
        family=family,
        labels=labels,
        metrics=run.metrics(),
        loss=run.recipe.loss,
        source=str(run.folder),
        origin={"name": run.task_name, "options": run.task_options, "lexicon": lexicon},
        task_maker=run.task,
    )


RUNS = Store(
    is_run,
    lambda path, _: model_of_run(open_run(path)),
    lambda path: open_run(path).config,
    lambda path: tokenizer_from_dict(open_run(path).tokenizer),
)
"""The reader of run folders."""


def tokenizers_of(task: Task) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return both tokenizers as JSON gives them back."""
    target = task.target_tokenizer
    return as_read(task.tokenizer.to_dict()), None if target is None else as_read(target.to_dict())


def _part(arrays: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the arrays whose names begin with that of a part, without it."""
    return {name.removeprefix(part + "."): x for name, x in arrays.items() if name.startswith(part + ".")}
