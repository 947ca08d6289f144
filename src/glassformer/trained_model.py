"""A model as one object: its settings, its parameters, how it reads and writes text, and what it can do.

It stands low, so that what reads weights can return it; its methods load functions of higher rooms at first use.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from .config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from .core import dispatch
from .core.arguments import short_traces
from .core.arrays import Array, Tree
from .core.errors import ConfigError, WeightsError
from .core.execution import PLAIN, Execution
from .core.setting import check_known
from .core.tree import count, flatten
from .data import Lexicon, Task
from .models import Batch, Model, build, check_params
from .models.model import Pooling as Pooling
from .text import PublishedTokenizer, Tokenizer

START, END = "<bos>", "<eos>"  # what our own tokenizers call the tokens before and after a text
FORMATS = ("hf", "gguf", "peft")


def _room(name: str) -> Any:
    """Return a module of a higher room; an import statement here would point upward."""
    return import_module(f"{__package__}.{name}")


@short_traces
@dataclass(eq=False)
class TrainedModel:
    """A model with its parameters, its tokenizer and its history, as `gf.train` and `gf.load` return it.

        generate, stream, chat      of decoders and encoder-decoders
        embed, classify             of encoders
        ask, evaluate, plot         of models that were trained here
        batch, watch, explore       look inside, whatever the architecture
        save, export                write files; `gf.train` takes a model too, and trains it further

    config              its settings; a model that `gf.build` made is taken too, with its class and its execution
    params              nested dicts of arrays; they may be changed, and every method uses the current ones
    tokenizer           of what it reads; target_tokenizer of what it writes, where that differs
    start_id            put before a prompt (decoder), or the first token of an answer (encoder-decoder)
    end_ids             tokens that end an answer
    chat_template       how a conversation becomes a prompt
    pooling             how a sentence encoder makes one vector of a text
    family              the published family whose names its files use, such as llama; empty for our own
    labels              the names of a classifier's classes; empty: their numbers
    metrics             one dict for each step of its training; `history` has them as arrays
    source              where it came from
    extras              tensors that the model does not use but an export keeps, by their published names
    adapter             the LoRA adapters that are merged into its parameters, if there are any
    execution           how it runs
    origin              the name and the options of the task it learned, where that has a name
    task_maker          builds this task
    inputs              the batch that a model without a tokenizer reads
    loss                what its training minimized, and `evaluate` measures

    >>> import glassformer as gf
    >>> model = gf.train(None, "majority", steps=200, show=False)
    >>> model.config.architecture, model.classify("00112220").label
    ('encoder', '0')
    """

    config: TransformerConfig
    params: Tree
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    start_id: int | None = None
    end_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    pooling: Pooling | None = None
    family: str = ""
    labels: tuple[str, ...] = ()
    metrics: list[dict[str, Any]] = field(default_factory=list)
    source: str = ""
    extras: dict[str, Array] = field(default_factory=dict)
    adapter: Any = None
    execution: Execution = PLAIN
    origin: dict[str, Any] | None = None
    task_maker: Callable[[], Task] | None = None
    inputs: Batch | None = None
    built: Model | None = None
    loss: str = "cross_entropy"

    def __post_init__(self) -> None:
        given: Any = self.config
        if isinstance(given, Model):
            how = given.execution if self.execution == PLAIN else self.execution
            self.built, self.config, self.execution = given, given.config, how
        check_params(self.model, self.params)

    @classmethod
    def of_task(cls, model: Model, params: Tree, task: Task, **fields: Any) -> TrainedModel:
        """Return a model that learned a task, whose tokenizers say how its texts begin and end."""
        specials = task.answer_tokenizer.specials
        start = specials.get(START)
        if start is None and isinstance(model.config, EncoderDecoderConfig):
            start = int(task.train.batch(0, 1, 0).tokens[0, 0])
        known = {
            "tokenizer": task.tokenizer,
            "target_tokenizer": task.target_tokenizer,
            "start_id": start,
            "end_ids": (specials[END],) if END in specials else (),
            "labels": task.class_labels(model.config),
            "task_maker": lambda: task,
        }
        return cls(model, params, **{**known, **fields})  # type: ignore[arg-type]

    # --- what it is --------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        parts = (f"{count(self.params):,} parameters", self.source, repr(self.history) if self.metrics else "")
        return f"TrainedModel({', '.join([self.config.architecture, *filter(None, parts)])})"

    def _repr_html_(self) -> str:
        leaves = flatten(self.params)
        title = f"{self.config.architecture}, {count(self.params):,} parameters in {len(leaves)} arrays"
        return _room("interpret.show").html_of(title, leaves)

    def __getstate__(self) -> dict[str, Any]:
        # `origin` builds a task that has a name again; others may hold functions, which cannot be pickled.
        task = None if self.origin or self.task_maker is None else self.task
        return {**vars(self), "task_maker": partial(copy.copy, task) if task and task.is_picklable else None}

    def __copy__(self) -> TrainedModel:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainedModel:
        own = {name: copy.deepcopy(getattr(self, name), memo) for name in ("params", "metrics", "extras", "origin")}
        return replace(self, **own)

    @property
    def model(self) -> Model:
        """The architecture: `model.model.forward(model.params, tokens)` gives logits and the record."""
        if self.built is None:
            return build(self.config, self.execution)
        if self.built.config == self.config and self.built.execution == self.execution:
            return self.built
        return replace(self.built, config=self.config, execution=self.execution)  # type: ignore[type-var]

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.source or (self.origin or {}).get("name") or "this model"

    @property
    def answer_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of what is written."""
        return self.tokenizer if self.target_tokenizer is None else self.target_tokenizer

    @property
    def source_end_id(self) -> int | None:
        """The token that the tokenizer of an encoder-decoder puts after every source."""
        if not isinstance(self.config, EncoderDecoderConfig) or not isinstance(self.tokenizer, PublishedTokenizer):
            return None
        ids = self.tokenizer.encode("", specials=True)
        return int(ids[-1]) if len(ids) else None

    @property
    def lexicon(self) -> Lexicon:
        """How it reads and writes text, for tasks that take a vocabulary."""
        if self.tokenizer is None:
            raise WeightsError(f"{self.title} has no tokenizer to read text with", hint="get its tokenizer.json")
        end = self.end_ids[0] if self.end_ids else None
        return Lexicon(self.tokenizer, self.target_tokenizer, self.start_id, end, self.labels)

    @property
    def is_classifier(self) -> bool:
        """Whether it predicts one class for a text."""
        return isinstance(self.config, EncoderConfig) and self.config.head == "classes"

    @property
    def history(self) -> Any:
        """The steps of its training, as a `training.History`."""
        return _room("training.loop").History.from_metrics(self.metrics)

    @property
    def task(self) -> Task | None:
        """What it was trained on; the data is built when this is first asked."""
        if self.task_maker is None and self.origin is None:
            return None
        task = _room("loading").task_of(self) if self.task_maker is None else self.task_maker()
        self.task_maker = lambda: task
        return task

    # --- text out ----------------------------------------------------------------------------------------------------

    def generate(self, prompt: Any, *, changes: Any = (), **settings: Any) -> Any:
        """Continue a text, or answer a source, with a `Generation`; see `gf.generation.generate` for the settings.

        changes   one or several, of values inside the model while it writes: `gf.interpret.add("blocks.3", direction)`

        >>> import glassformer as gf
        >>> model = gf.train(None, "counting", show=False)
        >>> model.generate("1", temperature=0, max_new_tokens=5).text
        ' 2 3 4 5 6'
        """
        if changes:
            return _room("interpret.steering").generate(self, prompt, changes, settings)
        return _room("generation.texts").generate(self, prompt, **settings)

    def stream(self, prompt: Any, *, changes: Any = (), **settings: Any) -> Any:
        """Return an iterator over the pieces of one answer as they come: together, the text of `generate`.

        >>> import glassformer as gf
        >>> "".join(gf.train(None, "counting", show=False).stream("1", temperature=0, max_new_tokens=5))
        ' 2 3 4 5 6'
        """
        if changes:
            return _room("interpret.steering").stream(self, prompt, changes, settings)
        return _room("generation.texts").stream(self, prompt, **settings)

    def chat(self, messages: str | Sequence[dict[str, Any]], *, changes: Any = (), **settings: Any) -> Any:
        """Answer the last message of a conversation; see `gf.generation.reply` for the settings.

            gf.load("smollm2").chat([{"role": "user", "content": "What is the capital of France?"}]).text

        >>> import glassformer as gf
        >>> gf.train(None, "counting", steps=1, show=False).chat("Hello")
        Traceback (most recent call last):
        glassformer.core.errors.ConfigError: this model has no chat template: it was not made for conversations
        ...
        """
        if changes:
            return _room("interpret.steering").chat(self, messages, changes, settings)
        return _room("generation.conversation").reply(self, messages, **settings)

    def kept_as(self, weights: str) -> TrainedModel:
        """Return the same model with its matrices kept as float32, float16, int8 or int4, to write with.

        An engine with devices of its own moves all parameters there, as float32, bfloat16 or float16.

        >>> import glassformer as gf
        >>> model = gf.train(None, "counting", show=False)
        >>> model.kept_as("int8").generate("1", temperature=0, max_new_tokens=5).text
        ' 2 3 4 5 6'
        """
        return replace(self, params=dispatch.current().stored(self.params, weights))

    # --- what encoders do --------------------------------------------------------------------------------------------

    def embed(self, texts: str | Sequence[str]) -> Array:
        """Return one vector for each text, (N, D), or (D,) for one text; of an encoder.

        >>> import glassformer as gf
        >>> model = gf.train(None, "majority", steps=1, show=False)
        >>> model.embed(["0012", "2100"]).shape, model.embed("0012").shape
        ((2, 32), (32,))
        """
        return _room("weights.sentence").embed(self, texts)

    def classify(self, inputs: Any) -> Any:
        """Return a `Classification` of a text or a sequence of ids, or a list of them for several; of a classifier.

        >>> import glassformer as gf
        >>> model = gf.train(None, "majority", steps=200, show=False)
        >>> [found.label for found in model.classify(["00112220", "21021021"])]
        ['0', '1']
        >>> found = model.classify([1, 1, 1, 1, 0, 2, 2, 2])
        >>> found.label, found.index, found.probability > 0.5, sorted(found.probabilities)
        ('1', 1, True, ['0', '1', '2'])
        """
        return _room("generation.answer").classify(self, inputs)

    # --- what was trained here ---------------------------------------------------------------------------------------

    def ask(self, text: str, *, length: int = 80, seed: int = 0) -> str:
        """Answer one typed input as its task understands it: a class, a sorted string, a date, a continued text.

        length, seed   of a continued text: at most this many tokens, sampled with this seed

        >>> import glassformer as gf
        >>> gf.train(None, "counting", show=False).ask("1")
        '2 3 4 5 6'
        """
        return _room("generation.answer").ask(self, text, length=length, seed=seed)

    def samples(self, count: int = 3, length: int = 80) -> list[tuple[str, str]]:
        """Return some prompts of its task, each with the model's answer.

        >>> import glassformer as gf
        >>> gf.train(None, "counting", show=False).samples(1)
        [('1', '2 3 4 5 6')]
        """
        return _room("generation.answer").samples(self, count, length)

    def evaluate(self, data: Any = None, **options: Any) -> Any:
        """Measure the model: its loss, and its accuracy where there is one right answer.

        data      as for `gf.train`, and its held-out part is measured (None: that of its own task), of a long text a
                  sample with the standard error `.error`; arrays and Datasets, as `model.task.held_out`, as a whole
        options   of the task

        >>> import glassformer as gf
        >>> model = gf.train(None, "majority", steps=200, show=False)
        >>> model.evaluate().accuracy > 0.9
        True
        """
        return _room("api.tasks").evaluated(self, data, options)

    def plot(self) -> Any:
        """Return a figure of how the training went; notebooks show it, and `gf.plots.save` writes it.

        >>> import glassformer as gf
        >>> gf.train(None, "counting", steps=20, show=False).plot().get_label()
        'Loss: training loss from ... at step 1 to ... at step 20; ...'
        """
        if not self.metrics:
            raise ConfigError("nothing is known about the training of this model", hint="train it with gf.train")
        return _room("plots").loss_curve(self.metrics)

    # --- looking inside ----------------------------------------------------------------------------------------------

    def batch(self, text: str | Sequence[str], answer: str | Sequence[str] | None = None) -> Batch:
        """Return a text, or several padded at the end, with the special tokens that the model was trained with.

        A model that answers has its own answer behind the text, unless another one is given. Of a classifier, `answer`
        is the right class, which a loss needs.

        >>> import glassformer as gf
        >>> gf.train(None, "majority", steps=1, show=False).batch(["0012", "21"])
        Batch(tokens (2, 4), mask (2, 4))
        """
        return _room("interpret.reading").batch_of(self, text, answer)

    def watch(self, text: str | Sequence[str] | Batch = "", **settings: Any) -> Any:
        """Return the `interpret.Run` of the model on a text, several, or a batch; settings as in `interpret.watch`.

        >>> import glassformer as gf
        >>> run = gf.train(None, "majority", steps=1, show=False).watch(["0012", "21"])
        >>> run.logits.shape, run.tokens[1]
        ((2, 3), ['2', '1', '', ''])
        """
        return _room("interpret.reading").watch_texts(self, text, **settings)

    def explore(self, text: str | None = None, *, show: bool = True) -> Any:
        """Explore the model as it reads a text: in a notebook as a page below the cell, else in the browser.

        text   what it reads; None: an example
        show   False: nothing is opened; the result has `html()`, `save(path)` and `serve()`

        >>> import glassformer as gf
        >>> model = gf.train(None, "counting", steps=1, show=False)
        >>> model.explore("1 2 3", show=False)
        <exploration of counting: .serve() opens it in the browser, .save(path) writes one file>
        """
        return _room("api.exploration").explored(self, text, show=show)

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the model into a folder, exactly as it is, and return the folder; see `gf.save`.

        >>> import tempfile, glassformer as gf
        >>> model = gf.train(None, "counting", steps=1, show=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gf.load(model.save(folder + "/counting")).config == model.config
        True
        """
        return _room("api.files").save(self, path)

    def export(
        self,
        path: str | Path,
        *,
        format: Literal["hf", "gguf", "peft"] | None = None,  # noqa: A002
        weights: Literal["f32", "f16", "q8_0"] | None = None,
    ) -> list[Path]:
        """Write the model in a form that other programs read, and return its files.

        path      a new folder, or a new file that ends in .gguf
        format    hf: a folder as Hugging Face publishes them; gguf: a file for llama.cpp (None: by the path);
                  peft: a folder with the LoRA adapters alone, for PEFT and `gf.load(…, adapter=path)`
        weights   of a GGUF file: f32 (the default), f16 or q8_0: model.export("model.gguf", weights="q8_0")

        >>> import tempfile, glassformer as gf
        >>> model = gf.train("gpt2", "counting", steps=1, width=16, heads=2, layers=1, feed_forward=32, show=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in model.export(folder))
        ['config.json', 'generation_config.json', 'model.safetensors']
        """
        chosen = format or ("gguf" if Path(path).suffix == ".gguf" else "hf")
        check_known("there is no format", chosen, FORMATS)
        if chosen == "gguf":
            return [_room("weights.gguf").export_gguf(self, path, weights="f32" if weights is None else weights)]
        if weights is not None:
            raise ConfigError("weights is a setting of GGUF files", hint='leave it out, or set format="gguf"')
        if chosen == "peft":
            return _room("training.peft").export_adapter(self, path)
        return _room("weights.export").export_folder(self, path)
