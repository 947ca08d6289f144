"""A model as one object: its config, its parameters, its tokenizer, and what it can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core import dispatch
from ..core.arguments import short_traces
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from ..core.settings import check_known
from ..core.show import html_of
from ..core.tree import count, flatten
from ..models import Batch, Model
from ..weights.loaded_model import LoadedModel

if TYPE_CHECKING:
    from .exploration import Exploration

FORMATS = ("hf", "gguf", "peft")


@short_traces
@dataclass(eq=False, repr=False)
class TrainedModel(LoadedModel):
    """A model with its parameters, its tokenizer and its history, as `gf.train` and `gf.load` return it.

        generate, stream, chat      of decoders and encoder-decoders
        embed, classify, explain    of encoders
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
    >>> model = gf.train("majority", steps=200, show=False)
    >>> model.config.architecture, model.classify("00112220").label
    ('encoder', '0')
    """

    @classmethod
    def of(cls, loaded: LoadedModel) -> TrainedModel:
        """Return a model that was read, with everything that it can do."""
        return cls(**{one.name: getattr(loaded, one.name) for one in fields(loaded)})

    def __repr__(self) -> str:
        parts = (f"{count(self.params):,} parameters", self.source, repr(self.history) if self.metrics else "")
        return f"TrainedModel({', '.join([self.config.architecture, *filter(None, parts)])})"

    def _repr_html_(self) -> str:
        leaves = flatten(self.params)
        title = f"{self.config.architecture}, {count(self.params):,} parameters in {len(leaves)} arrays"
        return html_of(title, leaves)

    @property
    def history(self) -> Any:
        """The steps of its training, as a `training.History`."""
        from ..training.loop import History

        return History.from_metrics(self.metrics)

    # --- text out ----------------------------------------------------------------------------------------------------

    def generate(self, prompt: Any, *, changes: Any = (), **settings: Any) -> Any:
        """Continue a text, or answer a source, with a `Generation`; see `gf.generation.generate` for the settings.

        changes   one or several, of values inside the model while it writes: `gf.interpret.add("blocks.3", direction)`

        >>> import glassformer as gf
        >>> model = gf.train("counting", show=False)
        >>> model.generate("1", temperature=0, max_new_tokens=5).text
        ' 2 3 4 5 6'
        """
        if changes:
            from ..interpret import steering

            return steering.generate(self, prompt, changes, settings)
        from ..generation.texts import generate

        return generate(self, prompt, **settings)

    def stream(self, prompt: Any, *, changes: Any = (), **settings: Any) -> Any:
        """Return an iterator over the pieces of one answer as they come: together, the text of `generate`.

        >>> import glassformer as gf
        >>> "".join(gf.train("counting", show=False).stream("1", temperature=0, max_new_tokens=5))
        ' 2 3 4 5 6'
        """
        if changes:
            from ..interpret import steering

            return steering.stream(self, prompt, changes, settings)
        from ..generation.texts import stream

        return stream(self, prompt, **settings)

    def chat(self, messages: str | Sequence[dict[str, Any]], *, changes: Any = (), **settings: Any) -> Any:
        """Answer the last message of a conversation; see `gf.generation.reply` for the settings.

            gf.load("smollm2").chat([{"role": "user", "content": "What is the capital of France?"}]).text

        >>> import glassformer as gf
        >>> gf.train("counting", steps=1, show=False).chat("Hello")
        Traceback (most recent call last):
        glassformer.core.errors.ConfigError: this model has no chat template: it was not made for conversations
        ...
        """
        if changes:
            from ..interpret import steering

            return steering.chat(self, messages, changes, settings)
        from ..generation.conversation import reply

        return reply(self, messages, **settings)

    def kept_as(self, weights: str) -> TrainedModel:
        """Return the same model with its matrices kept as float32, float16, int8 or int4, to write with.

        An engine with devices of its own moves all parameters there, as float32, bfloat16 or float16.

        >>> import glassformer as gf
        >>> model = gf.train("counting", show=False)
        >>> model.kept_as("int8").generate("1", temperature=0, max_new_tokens=5).text
        ' 2 3 4 5 6'
        """
        return replace(self, params=dispatch.current().executor.stored(self.params, weights))

    # --- what encoders do --------------------------------------------------------------------------------------------

    def embed(self, texts: str | Sequence[str]) -> Array:
        """Return one vector for each text, (N, D), or (D,) for one text; of an encoder.

        >>> import glassformer as gf
        >>> model = gf.train("majority", steps=1, show=False)
        >>> model.embed(["0012", "2100"]).shape, model.embed("0012").shape
        ((2, 32), (32,))
        """
        from ..weights.sentence import embed

        return embed(self, texts)

    def classify(self, inputs: Any) -> Any:
        """Return a `Classification` of a text or a sequence of ids, or a list of them for several; of a classifier.

        >>> import glassformer as gf
        >>> model = gf.train("majority", steps=200, show=False)
        >>> [found.label for found in model.classify(["00112220", "21021021"])]
        ['0', '1']
        >>> found = model.classify([1, 1, 1, 1, 0, 2, 2, 2])
        >>> found.label, found.index, found.probability > 0.5, sorted(found.probabilities)
        ('1', 1, True, ['0', '1', '2'])
        """
        from ..generation.answer import classify

        return classify(self, inputs)

    def explain(self, text: str, of: int | str | None = None, *, truncate: bool = False) -> Any:
        """Return which words of a text decided its class, as an `interpret.Explanation`; of a classifier.

        of         the class in question, by its label or its number (None: the likeliest)
        truncate   of a text longer than the context, explain its beginning; False: refuse it

        >>> import glassformer as gf
        >>> model = gf.train("majority", steps=200, show=False)
        >>> found = model.explain("11110222")
        >>> found.label, found.words[0].word, found.words[0].left_out > 0
        ('1', '1', True)
        """
        from ..interpret.words import explain

        return explain(self, text, of, truncate=truncate)

    # --- what was trained here ---------------------------------------------------------------------------------------

    def ask(self, text: str, *, length: int = 80, seed: int = 0) -> str:
        """Answer one typed input as its task understands it: a class, a sorted string, a date, a continued text.

        length, seed   of a continued text: at most this many tokens, sampled with this seed

        >>> import glassformer as gf
        >>> gf.train("counting", show=False).ask("1")
        '2 3 4 5 6'
        """
        from ..generation.answer import ask

        return ask(self, text, length=length, seed=seed)

    def samples(self, count: int = 3, length: int = 80) -> list[tuple[str, str]]:
        """Return some prompts of its task, each with the model's answer.

        >>> import glassformer as gf
        >>> gf.train("counting", show=False).samples(1)
        [('1', '2 3 4 5 6')]
        """
        from ..generation.answer import samples

        return samples(self, count, length)

    def evaluate(self, data: Any = None, **options: Any) -> Any:
        """Measure the model: its loss, and its accuracy where there is one right answer.

        data      as for `gf.train`, and its held-out part is measured (None: that of its own task), of a long text a
                  sample with the standard error `.error`; arrays and Datasets, as `model.task.held_out`, as a whole
        options   of the task

        >>> import glassformer as gf
        >>> model = gf.train("majority", steps=200, show=False)
        >>> model.evaluate().accuracy > 0.9
        True
        """
        from .tasks import evaluated

        return evaluated(self, data, options)

    def plot(self) -> Any:
        """Return a figure of how the training went; notebooks show it, and `gf.plots.save` writes it.

        >>> import glassformer as gf
        >>> gf.train("counting", steps=20, show=False).plot().get_label()
        'Loss: training loss from ... at step 1 to ... at step 20; ...'
        """
        if not self.metrics:
            raise ConfigError("nothing is known about the training of this model", hint="train it with gf.train")
        from ..plots import loss_curve

        return loss_curve(self.metrics)

    # --- looking inside ----------------------------------------------------------------------------------------------

    def batch(self, text: str | Sequence[str], answer: str | Sequence[str] | None = None) -> Batch:
        """Return a text, or several padded at the end, with the special tokens that the model was trained with.

        A model that answers has its own answer behind the text, unless another one is given. Of a classifier, `answer`
        is the right class, which a loss needs.

        >>> import glassformer as gf
        >>> gf.train("majority", steps=1, show=False).batch(["0012", "21"])
        Batch(tokens (2, 4), mask (2, 4))
        """
        from ..interpret.reading import batch_of

        return batch_of(self, text, answer)

    def watch(self, text: str | Sequence[str] | Batch = "", **settings: Any) -> Any:
        """Return the `interpret.Run` of the model on a text, several, or a batch; settings as in `interpret.watch`.

        >>> import glassformer as gf
        >>> run = gf.train("majority", steps=1, show=False).watch(["0012", "21"])
        >>> run.logits.shape, run.tokens[1]
        ((2, 3), ['2', '1', '', ''])
        """
        from ..interpret.reading import watch_texts

        return watch_texts(self, text, **settings)

    def explore(self, text: str | None = None, *, show: bool = True) -> Any:
        """Explore the model as it reads a text: in a notebook as a page below the cell, else in the browser.

        text   what it reads; None: an example
        show   False: nothing is opened; the result has `html()`, `save(path)` and `serve()`

        >>> import glassformer as gf
        >>> model = gf.train("counting", steps=1, show=False)
        >>> model.explore("1 2 3", show=False)
        <exploration of counting: .serve() opens it in the browser, .save(path) writes one file>
        """
        from .exploration import explored

        return explored(self, text, show=show)

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the model into a folder, exactly as it is, and return the folder; see `gf.save`.

        >>> import tempfile, glassformer as gf
        >>> model = gf.train("counting", steps=1, show=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gf.load(model.save(folder + "/counting")).config == model.config
        True
        """
        from ..weights.saved import save_folder

        if not isinstance(path, str | Path):
            raise ConfigError(f"the folder for a model is {path!r:.80}", hint="pass a path")
        return save_folder(self, path)

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
        >>> model = gf.train("counting", "gpt2", steps=1, width=16, heads=2, layers=1, feed_forward=32, show=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in model.export(folder))
        ['config.json', 'generation_config.json', 'model.safetensors']
        """
        chosen = format or ("gguf" if Path(path).suffix == ".gguf" else "hf")
        check_known("there is no format", chosen, FORMATS)
        if chosen == "gguf":
            from ..weights.gguf import export_gguf

            return [export_gguf(self, path, weights="f32" if weights is None else weights)]
        if weights is not None:
            raise ConfigError("weights is a setting of GGUF files", hint='leave it out, or set format="gguf"')
        if chosen == "peft":
            from ..training.peft import export_adapter

            return export_adapter(self, path)
        from ..weights.export import export_folder

        return export_folder(self, path)


# --- as functions ----------------------------------------------------------------------------------------------------


def save(model: TrainedModel, path: str | Path) -> Path:
    """Write a model into a folder, exactly as it is, and return the folder; `gf.load` reads it.

    A folder that holds a saved model already is replaced, any other one that is not empty refused. The commands read it
    too: `glassformer generate FOLDER`. For other programs, see `TrainedModel.export`.

    >>> import tempfile, glassformer as gf
    >>> model = gf.train("majority", steps=1, show=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = gf.load(gf.save(model, folder + "/majority"))
    >>> again.config == model.config, again.labels, len(again.history)
    (True, ('0', '1', '2'), 1)
    """
    if not isinstance(model, TrainedModel):
        raise ConfigError(
            f"this is a {type(model).__name__}, not a trained model",
            hint="save what gf.train or gf.load returned, or gf.TrainedModel(model.config, params)",
        )
    return model.save(path)


def explore(model: Model, params: Tree, batch: Batch, *, show: bool = True) -> Exploration:
    """Explore a model at work on a batch: in a notebook as a page below the cell, else in the browser until Ctrl-C.

    show   False: nothing is opened; the result has `html()`, `save(path)` and `serve()`

    >>> import numpy as np, glassformer as gf
    >>> model = gf.build("tiny-decoder")
    >>> seen = gf.explore(model, model.init(0), gf.Batch(np.array([[5, 3, 8, 3]])), show=False)
    >>> seen, seen.html()[:15]
    (<exploration of Decoder: ...>, '<!doctype html>')
    """
    given = TrainedModel(model, params, source=type(model).__name__, inputs=batch)  # type: ignore[arg-type]
    exploration: Exploration = given.explore("", show=show)
    return exploration
