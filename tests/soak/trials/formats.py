"""Small whole files of every format that is read, and how each is spoiled and read."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .mutate import spoiled_bytes, spoiled_json, spoiled_text

SIZES = {"vocab": 24, "width": 8, "heads": 2, "layers": 1, "context": 16, "feed_forward": 8, "dropout": 0.0}
FAMILIES = {
    "gpt2": {}, "bert-base": {}, "t5-small": {"head_width": 4}, "llama-2-7b": {"kv_heads": 1},
    "llama-3.1-8b": {"kv_heads": 1, "head_width": 8}, "mistral-7b": {"kv_heads": 2, "window": 4},
    "qwen2-0.5b": {"kv_heads": 1},
}  # fmt: skip
"""Presets whose layouts are published, and what makes each of them small."""

TSV = "one\teins\ntwo\tzwei\n\nthree\tdrei\nGröße\tsize\n"
PO = """# catalog
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"

#, fuzzy
msgid "maybe"
msgstr "vielleicht"

msgctxt "menu"
msgid "File"
msgstr "Datei"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "a \\"quoted\\" \\101\\x41"
"and more"
msgstr "ein"
#~ msgid "old"
#~ msgstr "alt"
"""
PO_WORDS = ("msgid", "msgstr", "msgctxt", "msgid_plural", "msgstr[0]", "msgstr[99]", '"', '""', "\\", "\\x", "#,", "#~",
            "fuzzy", "charset=utf-16", "charset=ISO-8859-1", "charset=idna", "\n\n")  # fmt: skip
TEMPLATES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('in turn!') }}{% endif %}{% set content = message['content'] | trim + eos_token %}"
    "{{ '[INST] ' ~ content ~ ' [/INST]' }}{% endfor %}",
    "{% macro show(x, n) %}{{ x }}{% if n > 0 %}{{ show(x, n - 1) }}{% endif %}{% endmacro %}"
    "{% set ns = namespace(found=false) %}{% for m in messages %}{% set ns.found = true %}"
    "{{ show(m.content, 2) }}{{ m | tojson(indent=2) }}{% endfor %}{{ strftime_now('%Y') }}",
)
TEMPLATE_WORDS = (
    "{{", "}}", "{%", "%}", "{#", "{% for x in range(10 ** 9) %}", "{% endfor %}", "{% break %}", "{% if %}", "|",
    "* 10 ** 9", "messages * 999999", "'x' * 99999999", "| center(99999999)", "| tojson", "| map('upper') | list",
    "loop", "self", "lipsum(n=9)", "messages.__class__", "cycler", "joiner", "namespace()", "range(9) | sum",
    "| batch(0)", "| indent(99999999)", "% 0", "// 0", "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "'%99999999d' % 1", "| format(1)", "{% set x = x ~ x %}", "**",
)  # fmt: skip
CHAT = [{"role": "user", "content": "Hello <|im_end|>"}, {"role": "assistant", "content": "Hi"}]


class Format(NamedTuple):
    """One kind of file.

    whole   the files that cases begin with, as a pattern within the folder that all share
    spoil   returns the content of a file, spoiled
    read    reads a folder in which the file of that name is spoiled, and uses what it reads
    """

    whole: str
    spoil: Callable[[bytes, random.Random], bytes]
    read: Callable[[Path], Any]


def write_all(shared: Path) -> None:
    """Write whole files of all formats."""
    from glassformer.data.corpus import write_tokens

    tokenizer = _write_published(shared)
    for name, content in (("pairs.tsv", TSV), ("pairs.po", PO), ("corpus.txt", TSV)):
        (shared / name.split(".")[1]).mkdir()
        (shared / name.split(".")[1] / name).write_text(content, encoding="utf-8")
    (shared / "mo").mkdir()
    (shared / "mo" / "pairs.mo").write_bytes(_mo([("", "charset=UTF-8"), ("one", "eins"), ("a\0b", "c\0d\0e")]))
    (shared / "bin").mkdir()
    write_tokens(shared / "txt" / "corpus.txt", shared / "bin" / "corpus.bin")
    _write_templates(shared, tokenizer)
    _write_llama2c(shared)
    _write_runs(shared)


def _write_published(shared: Path) -> Any:
    """Write folders of Hugging Face, saved models and GGUF files; return a tokenizer."""
    from glassformer.api.trained_model import TrainedModel
    from glassformer.models import build, preset
    from glassformer.text import ByteTokenizer, CharTokenizer
    from glassformer.text.published import PublishedTokenizer
    from glassformer.weights.export import export_folder
    from glassformer.weights.gguf import export_gguf
    from glassformer.weights.saved import save_folder
    from tokenizer_files import PUBLISHED

    kinds = {
        name: PublishedTokenizer(make().to_str(), roles=_roles(roles)) for name, (make, roles) in PUBLISHED.items()
    }
    for name, tokenizer in kinds.items():
        tokenizer.save(shared / "tokenizers" / name.replace(" ", "-"))
    bytewise, characters = ByteTokenizer(specials=("<eos>",)), CharTokenizer(TSV)
    for name, changes in FAMILIES.items():
        config = preset(name, **{**SIZES, **changes})
        plain = TrainedModel(config, build(config).init(0), family="")
        export_folder(plain, shared / "published" / name)
        save_folder(plain, shared / "saved" / name)
        if config.architecture == "decoder" and config.window is None:
            for tokenizer, weights in ((bytewise, "f32"), (characters, "q8_0")):
                sized = preset(name, **{**SIZES, **changes, "vocab": tokenizer.size})
                loaded = TrainedModel(sized, build(sized).init(0), tokenizer, chat_template=TEMPLATES[0])
                export_gguf(loaded, shared / "gguf" / f"{name}.{weights}.gguf", weights=weights)
    _write_blocks(shared / "gguf")
    return kinds["chat BPE"]


def _write_blocks(folder: Path) -> None:
    """Write GGUF files with the format's own library: weights in blocks, and tokens joined by merges."""
    import gguf_files

    settings = {**gguf_files.llama_settings(block_count=1), **gguf_files.byte_tokenizer()}
    tensors = gguf_files.llama_tensors(np.random.default_rng(0), layers=1, hidden=32)
    for kind in ("Q4_0", "Q8_0", "F16"):
        types = {"blk.0.ffn_down.weight": kind}
        gguf_files.write(
            folder / f"{kind}.gguf", "llama", {**settings, "llama.feed_forward_length": 32}, tensors, types
        )


def _roles(settings: dict[str, Any]) -> dict[str, str]:
    names = {name.removesuffix("_token"): value for name, value in settings.items()}
    return {role: name["content"] if isinstance(name, dict) else name for role, name in names.items()}


def _write_templates(shared: Path, tokenizer: Any) -> None:
    for number, template in enumerate(TEMPLATES):
        folder = shared / "templates" / str(number)
        tokenizer.save(folder)
        (folder / "template.jinja").write_text(template, encoding="utf-8")


def _write_llama2c(shared: Path) -> None:
    """Write a model of llama2.c, and its tokenizer in the same folder."""
    width, hidden, layers, heads, kv_heads, vocab, context = sizes = 8, 8, 1, 2, 1, 262, 8
    shared_width = width // heads * kv_heads
    blocks = layers * (2 * width + 2 * width * width + 2 * shared_width * width + 3 * hidden * width)
    count = vocab * width + blocks + width + context * (width // heads)
    numbers = np.random.default_rng(0).normal(0, 0.3, count).astype("<f4")
    (shared / "llama2c").mkdir()
    (shared / "llama2c" / "model.bin").write_bytes(struct.pack("<7i", *sizes) + numbers.tobytes())
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), " ", "a", "aa"]
    entries = [struct.pack("<fi", -i, len(p.encode())) + p.encode() for i, p in enumerate(pieces)]
    (shared / "llama2c" / "tokenizer.bin").write_bytes(struct.pack("<i", 9) + b"".join(entries))


def _write_runs(shared: Path) -> None:
    from glassformer.core.dispatch import use_engine
    from runs import tiny_session

    with use_engine("numpy"):
        for task in ("majority", "lines"):
            for _ in tiny_session(task, shared / "runs" / task, steps=3, eval_every=2).steps():
                pass


def _mo(messages: list[tuple[str, str]]) -> bytes:
    """Compile a catalog."""
    texts = [text.encode() + b"\0" for pair in zip(*messages, strict=True) for text in pair]
    place, table, count = 28 + 16 * len(messages), b"", len(messages)
    for text in texts:
        table += struct.pack("<2I", len(text) - 1, place)
        place += len(text)
    return struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0) + table + b"".join(texts)


def _json(content: bytes, rng: random.Random) -> bytes:
    return spoiled_json(json.loads(content), rng)


def _json_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    lines[place] = spoiled_json(json.loads(lines[place]), rng) + rng.choice((b"\n", b"\n", b"", b"\n\n"))
    return b"".join(lines)


def _safetensors(content: bytes, rng: random.Random) -> bytes:
    """Spoil the header, as JSON or as bytes; the length before it mostly says the truth."""
    size = int.from_bytes(content[:8], "little")
    if rng.random() < 0.4:
        return spoiled_bytes(content, rng, within=8 + size)
    header = spoiled_json(json.loads(content[8 : 8 + size]), rng)
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _header(content: bytes, rng: random.Random) -> bytes:
    return spoiled_bytes(content, rng, within=rng.choice((64, 400, 4000, len(content))))


def _words(*words: str) -> Callable[[bytes, random.Random], bytes]:
    def spoil(content: bytes, rng: random.Random) -> bytes:
        text = spoiled_text(content.decode(), rng, words).encode("utf-8", "surrogatepass")
        return spoiled_bytes(text, rng) if rng.random() < 0.1 else text

    return spoil


def _use_tokenizer(tokenizer: Any) -> None:
    if tokenizer is not None:
        tokenizer.decode(tokenizer.encode("Größe <s> aa\n日本"))


def _model(folder: Path) -> None:
    """Read a model and let it compute."""
    from glassformer.api.loading import read_model

    loaded = read_model(folder)
    _use_tokenizer(loaded.tokenizer)
    ids = np.array([[1, 2, 3]])
    both = (ids,) if loaded.config.architecture == "encoder-decoder" else ()
    with np.errstate(all="ignore"):  # the numbers are anyone's
        loaded.model.forward(loaded.params, ids, *both)


def _file(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        _model(next(folder.glob(name)))

    return read


def _tokenizer(folder: Path) -> None:
    from glassformer.text.published import PublishedTokenizer

    _use_tokenizer(PublishedTokenizer.load(folder))


def _template(folder: Path) -> None:
    from glassformer.text.chat import encode_chat
    from glassformer.text.published import PublishedTokenizer

    template = (folder / "template.jinja").read_bytes().decode("utf-8", "replace")
    encode_chat(PublishedTokenizer.load(folder), CHAT, template=template, tools=[{"name": "f"}])


def _pairs(folder: Path) -> None:
    from glassformer.data import build_task

    build_task("pairs", data=folder)


def _tokens(folder: Path) -> None:
    from glassformer.data.corpus import open_tokens

    _use_tokenizer(open_tokens(folder / "corpus.bin").tokenizer)


def _run(folder: Path) -> None:
    """Read a run as `eval` and `runs` do, and resume it."""
    from glassformer.runs.listing import list_runs
    from glassformer.runs.run import open_run
    from glassformer.runs.sinks import RunFolder

    list_runs(folder.parent)
    run = open_run(folder)
    run.metrics()
    run.load_params()
    run.task()
    RunFolder(run).rewind_metrics(2)
    run.load_state()


FORMATS: dict[str, Format] = {
    "safetensors": Format("published/*/model.safetensors", _safetensors, _model),
    "GGUF": Format("gguf/*.gguf", _header, _file("*.gguf")),
    "llama2.c": Format("llama2c/model.bin", lambda c, rng: spoiled_bytes(c, rng, within=64), _file("model.bin")),
    "tokenizer.bin": Format("llama2c/tokenizer.bin", _header, _file("model.bin")),
    "tokenizer.json": Format("tokenizers/*/tokenizer.json", _json, _tokenizer),
    "tokenizer_config.json": Format("tokenizers/*/tokenizer_config.json", _json, _tokenizer),
    "config.json": Format("published/*/config.json", _json, _model),
    "glassformer.json": Format("saved/*/glassformer.json", _json, _model),
    "config of a run": Format("runs/*/config.json", _json, _run),
    "metrics": Format("runs/*/metrics.jsonl", _json_lines, _run),
    "checkpoint": Format("runs/*/latest.safetensors", _safetensors, _run),
    ".mo": Format("mo/pairs.mo", spoiled_bytes, _pairs),
    ".po": Format("po/pairs.po", _words(*PO_WORDS), _pairs),
    ".tsv": Format("tsv/pairs.tsv", _words("\t", "\n", "\r", "\ufeff", "\t\t"), _pairs),
    "token file": Format("bin/corpus.bin.json", _json, _tokens),
    "template": Format("templates/*/template.jinja", _words(*TEMPLATE_WORDS), _template),
}
