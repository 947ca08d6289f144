"""Writing: token by token, with the alternatives and what the sampling settings cut away."""

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from ...config import EncoderConfig
from ...core.arrays import Array, check_ids, check_length
from ...core.errors import ConfigError
from ...generation.answer import predict_masks
from ...generation.conversation import Conversation
from ...generation.sampling import Sampling, SamplingStage, choose, likeliest, only_known, stages
from ...generation.texts import CONTEXT_OF_TEXT, encode_prompts
from ...interpret.reading import answers as answers_apart
from ...interpret.reading import batch_of, known_task
from ...text import PublishedTokenizer, StreamDecoder, Tokenizer, pieces_of, printable
from ...text.chat import render_chat
from ...weights.loaded_model import END
from ...weights.sentence import embed, similarities
from ..explorer import Explorer, OpenModel
from ..jobs import Job, Work
from ..router import route
from ..state import PageState
from ..writer import Ids, PageWriter, writer_of

SHOWN = 24
"""Tokens of a distribution that are shown."""
MOST = 400
"""Most tokens of one answer, and of one request."""
PIECES = 3000
TEXTS = 8
TURNS = 64

_writers: WeakKeyDictionary[OpenModel, PageWriter] = WeakKeyDictionary()
"""Of each model that a page writes with unchanged."""


@dataclass(frozen=True)
class Continuation:
    """The input before the first new token, and what is needed to continue it.

    ids, source   the tokens that the answer stands behind, and what the encoder of an encoder-decoder reads
    ends          tokens that end an answer
    """

    opened: OpenModel
    writer: PageWriter
    ids: Ids
    source: Ids | None
    ends: frozenset[int]
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        context = self.opened.model.config.context
        for what, ids in (("text", self.ids), ("source", self.source)):
            if ids is not None:
                check_length(len(ids), context, what=f"the {what}")

    def logits(self, written: Ids) -> Array:
        """Return the logits about the token after what was written; ids that the tokenizer does not have are out."""
        logits = self.writer.logits((*self.ids, *written), self.source)
        return only_known(logits, self.tokenizer.size)

    def text(self, written: Ids) -> str:
        """Return what was written, as it goes on from what was read."""
        before = [] if self.source is not None else self.ids[-CONTEXT_OF_TEXT:]
        decoder = StreamDecoder(self.tokenizer, after=before)
        pieces = [decoder.push(token) for token in written if token not in self.ends]
        return printable("".join([*pieces, decoder.finish()]))

    def left(self, written: Ids) -> int:
        """Return how many tokens may still be written: the last one fills the place after the context."""
        return self.opened.model.config.context + 1 - len(self.ids) - len(written)


@dataclass(frozen=True)
class ChatTurn:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


Chat = Annotated[tuple[ChatTurn, ...] | None, TURNS]


@dataclass(frozen=True)
class WritingQuestion:
    """What is written on: the text of a state or a conversation, and the tokens that were written behind it."""

    state: PageState
    chat: Chat = None
    written: Annotated[tuple[int, ...], MOST] = ()


@dataclass(frozen=True)
class Draw:
    """The settings by which the next token is chosen."""

    seed: int = 0
    temperature: Any = None
    top_k: Any = None
    top_p: Any = None
    min_p: Any = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"the seed is {self.seed}", hint="use a seed of zero or more")

    @cached_property
    def sampling(self) -> Sampling:
        """The settings that are given."""
        names = ("temperature", "top_k", "top_p", "min_p")
        return Sampling.of({name: getattr(self, name) for name in names if getattr(self, name) is not None})

    def token(self, logits: Array, place: int) -> int:
        """Return the token at a place of the answer that `generate` with the same seed would write there."""
        rng = np.random.default_rng((self.seed, 0))
        rng.random(place)  # each token before took one number
        return int(choose(logits[None], None, self.sampling, [rng])[0])


def continuation(explorer: Explorer, asked: WritingQuestion) -> Continuation:
    """Return what was read, and what continues it."""
    opened = explorer.opened(asked.state.model)
    model = opened.model
    if isinstance(model.config, EncoderConfig):
        raise ConfigError(f"{model.title} is an encoder, which does not write", hint="choose another model")
    if model.inputs is not None:
        raise ConfigError(f"{model.title} has a batch of ids and no tokenizer", hint="load a model that has one")
    check_ids(np.array(asked.written, dtype=np.int64), model.config.vocab, what="the ids that were written")
    task, source = known_task(model), None
    tokenizer, ends = model.answer_tokenizer, frozenset(model.end_ids)
    if asked.chat is not None:
        read, ends = _conversation(opened, asked.chat)
        tokenizer = model.tokenizer
    elif task is not None:
        batch, tokenizer = task.encode_input(asked.state.text), task.answer_tokenizer
        [read], source = batch.tokens, batch.source
        ends = frozenset({tokenizer.specials[END]} if END in tokenizer.specials else ())
    else:
        [read], source = encode_prompts(model, [asked.state.text])
    assert tokenizer is not None
    writer = _writer(explorer, asked, opened, len(read))
    first = None if source is None else writer.read("source", _plain(source[0]))
    return Continuation(opened, writer, writer.read("tokens", _plain(read)), first, ends, tokenizer)


def _writer(explorer: Explorer, asked: WritingQuestion, opened: OpenModel, size: int) -> PageWriter:
    """Return the model that writes, with the steps and changes of a state."""
    if not asked.state.steps and not asked.state.changes:
        return _writers.setdefault(opened, PageWriter(opened.model.model, opened.params))
    session, chats = explorer.session(asked.state), asked.chat is not None
    return session.once(f"writer {chats}", lambda: writer_of(session, size, chats=chats))


def _conversation(opened: OpenModel, chat: Chat) -> tuple[Ids, frozenset[int]]:
    """Return the ids of a conversation up to the beginning of the next answer, and the tokens that end one."""
    conversation = Conversation(opened.model)
    ids = conversation.encoded([asdict(one) for one in chat or ()])
    return _plain(ids), frozenset(conversation.request.stop_ids)


def _plain(ids: Array) -> Ids:
    return tuple(int(i) for i in np.asarray(ids))


# --- the next token --------------------------------------------------------------------------------------------------


@route("next")
def next_token(explorer: Explorer, asked: WritingQuestion, draw: Draw) -> dict[str, Any]:
    """Return the distribution of the next token, what each setting leaves out, and the token that the seed draws."""
    writing, written, sampling = continuation(explorer, asked), asked.written, draw.sampling
    here: dict[str, Any] = {
        "read": len(writing.ids),
        "context": writing.opened.model.config.context,
        "room": writing.left(written),
        "text": writing.text(written),
        "source": None if writing.source is None else len(writing.source),
        "before": [_named(writing, i) for i in writing.ids],
        "written": [_named(writing, i) for i in written],
        "limits": writing.writer.limits,
    }
    if here["room"] <= 0:
        return {**here, "choices": [], "full": True}
    logits = writing.logits(written)
    found = stages(logits, sampling)
    drawn = draw.token(logits, len(written))
    shown = likeliest(found[0].probabilities, min(SHOWN, len(logits))).tolist()
    shown += [] if drawn in shown else [drawn]
    return {
        **here,
        "full": False,
        "choices": [_choice(writing, found, i) for i in shown],
        "count": int(np.sum(found[0].probabilities > 0)),
        "left": int(np.sum(found[-1].probabilities > 0)),
        "cut": {stage.name: {"count": int(stage.cut.sum()), "mass": float(before.probabilities[stage.cut].sum())}
                for before, stage in pairwise(found)},
        "drawn": _named(writing, drawn),
    }  # fmt: skip


def _named(writing: Continuation, number: int) -> dict[str, Any]:
    label = writing.opened.model.token_labels.tokens(number)
    return {"id": number, "label": printable(label), "ends": number in writing.ends}


def _choice(writing: Continuation, found: list[SamplingStage], number: int) -> dict[str, Any]:
    """Return what one token is called, and its probability after each setting."""
    cut = next((stage.name for stage in found if stage.cut[number]), None)
    return {
        **_named(writing, number),
        "own": float(found[0].probabilities[number]),
        "tempered": float(found[1].probabilities[number]),
        "kept": float(found[-1].probabilities[number]),
        "cut": cut,
    }


@route("write")
def write(explorer: Explorer, asked: WritingQuestion, draw: Draw, count: int) -> Work:
    """Begin to write some tokens on from where a question stands; each is shown as it comes."""
    if not 1 <= count <= MOST:
        raise ConfigError(f"{count:,} tokens are asked for", hint=f"ask for 1 to {MOST} at once")

    def work(job: Job) -> dict[str, Any]:
        writing, written = continuation(explorer, asked), asked.written
        tokens: list[dict[str, Any]] = []
        while len(tokens) < count and writing.left(written) > 0 and len(written) < MOST:
            logits = writing.logits(written)
            number = draw.token(logits, len(written))
            tokens.append(_choice(writing, stages(logits, draw.sampling), number))
            written = (*written, number)
            partial = {"tokens": list(tokens), "text": writing.text(written)}
            job.show(len(tokens), count, f"{len(tokens)} of {count} tokens", partial)
            if number in writing.ends:
                break
        return {"tokens": tokens, "text": writing.text(written), "full": writing.left(written) <= 0}

    return work


@route("written_text")
def written_text(explorer: Explorer, asked: WritingQuestion) -> dict[str, Any]:
    """Return what was read and written as the text of a state, and whether it is read as the same tokens again."""
    writing, written, state = continuation(explorer, asked), asked.written, asked.state
    model = writing.opened.model
    said, text, answer = writing.text(written), state.text, state.answer
    if asked.chat is not None:
        text = _prompt(writing.opened, asked.chat) + said
    elif answers_apart(model):
        answer = said
    else:
        text = state.text + said
    have = writing.writer.read("tokens", _plain(np.asarray(batch_of(model, text, answer).tokens)[0]))
    want = (*writing.ids, *(i for i in written if i not in writing.ends))
    return {"text": text, "answer": answer, "same": have == want, "now": len(have), "then": len(want)}


# --- texts -----------------------------------------------------------------------------------------------------------


@route("prompt")
def prompt(opened: OpenModel, chat: Chat) -> dict[str, Any]:
    """Return the very text that a conversation becomes."""
    ids, _ = _conversation(opened, chat)
    return {"text": _prompt(opened, chat), "count": len(ids), "context": opened.model.config.context}


def _prompt(opened: OpenModel, chat: Chat) -> str:
    model = opened.model
    assert isinstance(model.tokenizer, PublishedTokenizer)
    assert model.chat_template is not None
    return render_chat(model.chat_template, [asdict(one) for one in chat or ()], specials=model.tokenizer.roles)


@route("pieces")
def pieces(opened: OpenModel, text: str) -> dict[str, Any]:
    """Return what a tokenizer of a model cuts a text into."""
    model, read = opened.model, opened.model.tokenizer
    if read is None:
        raise ConfigError(f"{model.title} has no tokenizer", hint="get its tokenizer.json as well")
    found = pieces_of(read, text)
    specials = set(read.specials.values())
    return {
        "kind": read.kind,
        "size": read.size,
        "count": len(found),
        "context": model.config.context,
        "pieces": [{"text": printable(word), "id": i, "special": i in specials} for word, i in found[:PIECES]],
    }


@route("similarity")
def similarity(opened: OpenModel, texts: Annotated[tuple[str, ...], TEXTS]) -> dict[str, Any]:
    """Return how similar texts are to an encoder: the cosine between the vectors of every two."""
    if len(texts) < 2:
        raise ConfigError("there are no texts to compare", hint=f"give 2 to {TEXTS}")
    if not all(text.strip() for text in texts):
        raise ConfigError("a text is empty", hint="write something there, or leave it out")
    vectors = embed(opened.model, texts)
    return {"cosine": similarities(vectors), "width": int(vectors.shape[-1])}


@route("masks")
def masks(opened: OpenModel, text: str) -> dict[str, Any]:
    """Return what an encoder such as BERT finds behind the masks of a text."""
    model, tokenizer = opened.model, opened.model.tokenizer
    if not isinstance(tokenizer, PublishedTokenizer) or getattr(model.config, "head", "") != "tokens":
        raise ConfigError(f"{model.title} fills in no masks", hint="choose an encoder such as BERT")
    ids = np.asarray(tokenizer.encode(text, specials=True, parse_special=True))
    found = predict_masks(model.model, opened.params, ids, tokenizer=tokenizer, top=8)
    places = [[one._asdict() for one in place] for place in found.choices]
    return {"answer": printable(found.answer), "places": places}
