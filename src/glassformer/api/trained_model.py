"""A trained model as one object: what it can do depends on its architecture, and what it cannot is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import dispatch, ops
from ..arrays import Array, Tree, check_length
from ..config import EncoderConfig, TransformerConfig
from ..data import Lexicon, Task
from ..data.examples import stack
from ..errors import ConfigError, DataError, LengthError
from ..execution import PLAIN, Execution
from ..generation import LanguageModel
from ..generation.conversation import reply
from ..generation.language_model import Generation
from ..interpret.show import html_of
from ..loading import language_model, source_end
from ..models import Batch, Model, build
from ..runs.base import BaseModel
from ..runs.trained import Trained
from ..settings import check_known
from ..text import PublishedTokenizer
from ..text.tokenizer import Tokenizer
from ..training import Evaluation, History
from ..training.evaluate import evaluate
from ..tree import count, flatten
from ..weights.loaded import Loaded, Pooling
from ..weights.sentence import embed
from .exploration import Exploration, explored
from .tasks import evaluation_task

FORMATS = ("hf", "gguf")
"""Forms that other programs read."""


@dataclass(frozen=True)
class Classification:
    """What a classifier says about one sequence.

    label           what the likeliest class is called
    index           its number
    probability     how likely it is
    probabilities   of all classes, by what they are called
    """

    label: str
    index: int
    probability: float
    probabilities: dict[str, float]


@dataclass(eq=False)
class TrainedModel:
    """A model with its parameters, its tokenizer and its history, as `gf.train` and `gf.load` return it.

        generate, stream, chat      of decoders and encoder-decoders
        embed, classify             of encoders
        ask, evaluate, plot         of what was trained here
        explore, export             of any architecture; so are gf.save and gf.train, which goes on from here

    params              nested dicts of arrays; they may be changed, and every method uses what is there
    tokenizer           of what it reads; target_tokenizer of what it writes, where that differs
    start_id, end_ids   the tokens before and after a text
    labels              what the classes of a classifier are called
    history             what every step of its training did
    source              where it came from

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
    history: History = field(default_factory=History)
    source: str = ""
    extras: dict[str, Array] = field(default_factory=dict)
    execution: Execution = PLAIN
    origin: dict[str, Any] | None = None  # the name and the options of the task, where it has a name
    task_maker: Callable[[], Task] | None = None

    # --- what it is --------------------------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        leaves = flatten(self.params)
        title = f"{self.config.architecture}, {count(self.params):,} parameters in {len(leaves)} arrays"
        return html_of(title, leaves.items(), len(leaves))

    @property
    def model(self) -> Model:
        """The architecture: `model.model.forward(model.params, tokens)` gives logits and the record."""
        return build(self.config, self.execution)

    @property
    def answer_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of what is written."""
        return self.tokenizer if self.target_tokenizer is None else self.target_tokenizer

    @property
    def source_end_id(self) -> int | None:
        """The token that is put after what an encoder-decoder reads."""
        return None if self.tokenizer is None else source_end(self.config, self.tokenizer)

    @property
    def task(self) -> Task | None:
        """What it was trained on; its data is built when this is first asked."""
        if self.task_maker is None:
            return None
        task = self.task_maker()
        self.task_maker = lambda: task
        return task

    def __repr__(self) -> str:
        what = f"{self.config.architecture}, {count(self.params):,} parameters"
        return f"TrainedModel({what}{', ' + self.source if self.source else ''}{_went(self.history)})"

    # --- text out ----------------------------------------------------------------------------------------------------

    def generate(self, prompt: str | Sequence[str], **settings: Any) -> Any:
        """Continue a text, or answer a source, with a `Generation`; see `LanguageModel.generate` for the settings.

        >>> import glassformer as gf
        >>> model = gf.train(None, "counting", show=False)
        >>> model.generate("1", temperature=0, max_new_tokens=5).text
        ' 2 3 4 5 6'
        """
        return self.writer.generate(prompt if isinstance(prompt, str) else _texts(prompt), **settings)

    def stream(self, prompt: str, **settings: Any) -> Iterator[str]:
        """Return an iterator over the pieces of one answer as they come: together, the text of `generate`.

        >>> import glassformer as gf
        >>> model = gf.train(None, "counting", show=False)
        >>> "".join(model.stream("1", temperature=0, max_new_tokens=5))
        ' 2 3 4 5 6'
        """
        return self.writer.stream(prompt, **settings)

    def chat(self, messages: str | Sequence[dict[str, Any]], **settings: Any) -> Generation:
        """Answer the last message of a conversation; see `generation.conversation.reply` for the settings.

            messages = [{"role": "user", "content": "What is the capital of France?"}]
            answer = gf.load("smollm2").chat(messages, temperature=0)
            messages.append({"role": "assistant", "content": answer.text})

        >>> import glassformer as gf
        >>> gf.train(None, "counting", steps=1, show=False).chat("Hello")
        Traceback (most recent call last):
        glassformer.errors.ConfigError: this model has no chat template: it was not made for conversations
        ...
        """
        return reply(self.writer, messages, **settings)

    @property
    def writer(self) -> LanguageModel:
        """The same model as one that writes text; refused for encoders."""
        if isinstance(self.config, EncoderConfig):
            raise ConfigError(
                "this is an encoder, which reads and classifies but does not write text",
                hint="use model.embed(texts), model.classify(texts), or load a decoder",
            )
        return language_model(self.loaded)

    def kept_as(self, weights: str) -> TrainedModel:
        """Return the same model with its matrices kept as float32, float16, int8 or int4, to write with.

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
        many = [texts] if isinstance(texts, str) else _texts(texts)
        if not all(many):
            raise LengthError("a text is empty", hint="leave it out")
        vectors = embed(self.loaded, many)
        return vectors[0] if isinstance(texts, str) else vectors

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
        if not isinstance(self.config, EncoderConfig) or self.config.head != "classes":
            is_encoder = isinstance(self.config, EncoderConfig)
            what = "an encoder without a head for classes" if is_encoder else "no encoder"
            raise ConfigError(
                f"this is {what}, so it tells no classes apart",
                hint="use an encoder that was trained on classes, such as gf.train(None, 'majority')",
            )
        if not isinstance(inputs, str) and (not hasattr(inputs, "__len__") or len(inputs) == 0):
            raise LengthError("there is nothing to classify", hint="pass a text, token ids, or a list of either")
        single = isinstance(inputs, str) or (np.ndim(inputs[0]) == 0 and not isinstance(inputs[0], str))
        rows = [self._read(one) for one in ([inputs] if single else inputs)]
        tokens, mask = stack(rows)
        logits, _ = self.model.predict(self.params, Batch(tokens, mask=None if mask.all() else mask))
        found = [self._classified(row) for row in np.asarray(ops.softmax(logits)[0])]
        return found[0] if single else found

    def _read(self, given: Any) -> Array:
        """Return the ids of one text or sequence."""
        if isinstance(given, str):
            if self.tokenizer is None:
                raise ConfigError("this model has no tokenizer to read text with", hint="pass token ids")
            around = {"specials": True} if isinstance(self.tokenizer, PublishedTokenizer) else {}
            given = self.tokenizer.encode(given, **around)
        ids = np.asarray(given)
        if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
            raise LengthError(
                f"one input has shape {ids.shape} and type {ids.dtype}",
                hint=f"pass a text, or 1 to {self.config.context:,} token ids",
            )
        check_length(ids.size, self.config.context, what="the input")
        return ids

    def _classified(self, probabilities: Array) -> Classification:
        labels = self.labels or tuple(map(str, range(len(probabilities))))
        index = int(np.argmax(probabilities))
        named = {label: float(share) for label, share in zip(labels, probabilities, strict=True)}
        return Classification(labels[index], index, float(probabilities[index]), named)

    # --- what was trained here ---------------------------------------------------------------------------------------

    def ask(self, text: str, *, length: int = 80) -> str:
        """Answer one typed input as its task understands it: a class, a sorted string, a date, a continued text.

        >>> import glassformer as gf
        >>> gf.train(None, "counting", show=False).ask("1")
        '2 3 4 5 6'
        """
        if self.task is None:
            raise ConfigError(
                "this model has no task that says how to ask it", hint="use generate, classify or embed instead"
            )
        [typed] = _texts([text])
        return Trained(self.model, self.params, self.task).ask(typed, length=length)

    def evaluate(self, data: Any = None, **options: Any) -> Evaluation:
        """Measure the model: its loss, and its accuracy where there is one right answer.

        data      as for `gf.train`, and its held-out part is measured; arrays, a Batch or a Dataset are measured as a
                  whole. None: the held-out data of the task that the model learned
        options   of the task

        >>> import glassformer as gf
        >>> model = gf.train(None, "majority", steps=200, show=False)
        >>> model.evaluate().accuracy > 0.9
        True
        """
        if data is not None:
            task = evaluation_task(data, self.base, self.source or "this model", options)
        elif self.task is not None:
            task = self.task
        else:
            raise ConfigError("this model has no data of its own", hint="pass some: model.evaluate(data)")
        return evaluate(self.model, self.params, task.held_out, metric=task.metric, groups=task.groups)

    def plot(self) -> Any:
        """Return a figure of how the training went; notebooks show it, and `gf.plots.save` writes it.

        >>> import glassformer as gf
        >>> gf.train(None, "counting", steps=20, show=False).plot().get_label()
        'Loss: training loss from ... at step 1 to ... at step 20; ...'
        """
        from ..plots import loss_curve

        if not self.history:
            raise ConfigError("nothing is known about the training of this model", hint="train it with gf.train")
        return loss_curve(self.history.metrics)

    def explore(self, text: str | None = None, *, show: bool = True) -> Exploration:
        """Explore the model as it reads a text: in a notebook as a page below the cell, else in the browser.

        text   what it reads; None: an example
        show   False: nothing is opened; the result has `html()`, `save(path)` and `serve()`

        >>> import glassformer as gf
        >>> model = gf.train(None, "counting", steps=1, show=False)
        >>> model.explore("1 2 3", show=False)
        <exploration of counting: .serve() opens it in the browser, .save(path) writes one file>
        """
        trained = None if self.task is None else Trained(self.model, self.params, self.task)
        return explored(trained, self.loaded, text, show=show)

    def export(
        self,
        path: str | Path,
        *,
        format: Literal["hf", "gguf"] | None = None,  # noqa: A002
        weights: Literal["f32", "f16", "q8_0"] | None = None,
    ) -> list[Path]:
        """Write the model in a form that other programs read, and return its files.

        path      a new folder, or a new file that ends in .gguf
        format    hf: a folder as Hugging Face publishes them; gguf: a file for llama.cpp (None: by the path)
        weights   of a GGUF file: f32 (the default), f16 or q8_0: model.export("model.gguf", weights="q8_0")

            gf.train(None, "notes.txt").export("notes.gguf", weights="q8_0")

        >>> import tempfile, glassformer as gf
        >>> model = gf.train("gpt2", "counting", steps=1, width=16, heads=2, layers=1, feed_forward=32, show=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in model.export(folder))
        ['config.json', 'generation_config.json', 'model.safetensors']
        """
        from ..weights.export import export_folder
        from ..weights.gguf_export import SUFFIX, export_gguf

        chosen = format or ("gguf" if Path(path).suffix == SUFFIX else "hf")
        check_known("there is no format", chosen, FORMATS)
        if chosen == "gguf":
            return [export_gguf(self.loaded, path, weights="f32" if weights is None else weights)]
        if weights is not None:
            raise ConfigError("weights is a setting of GGUF files", hint='leave it out, or set format="gguf"')
        return export_folder(self.loaded, path)

    # --- for others --------------------------------------------------------------------------------------------------

    @property
    def loaded(self) -> Loaded:
        """The same model as what reads and writes files has it."""
        return Loaded(
            config=self.config,
            params=self.params,
            family=self.family,
            tokenizer=self.tokenizer,
            target_tokenizer=self.target_tokenizer,
            start_id=self.start_id,
            end_ids=self.end_ids,
            chat_template=self.chat_template,
            pooling=self.pooling,
            source=self.source,
            extras=self.extras,
            labels=self.labels,
            execution=self.execution,
            notes={"task": self.origin, "metrics": self.history.metrics},
        )

    @property
    def base(self) -> BaseModel:
        """The same model as what fine-tuning starts from."""
        if self.tokenizer is None:
            raise ConfigError("this model has no tokenizer to read text with", hint="get its tokenizer.json as well")
        end = self.end_ids[0] if self.end_ids else None
        lexicon = Lexicon(self.tokenizer, self.target_tokenizer, self.start_id, end)
        return BaseModel(self.config, self.params, lexicon, self.end_ids, self.family)


def _texts(given: Any) -> list[str]:
    """Return several texts; refuse what is none."""
    texts = list(given) if isinstance(given, Iterable) else [given]
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{text!r:.80} is no text", hint="pass a text, or a list of texts")
    return texts


def _went(history: History) -> str:
    return f", {history!r}" if history else ""
