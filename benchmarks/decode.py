"""Tokens per second of GPT-2 and SmolLM2, in turns with Hugging Face and llama.cpp, and the limit of the memory.

SmolLM2 writes after one prompt and after eight at once, reads a long prompt, and is loaded by fresh processes.

python benchmarks/decode.py                    tables
python benchmarks/decode.py --only smollm2     one model; also smollm2-prompt, smollm2-batch and smollm2-start
python benchmarks/decode.py --json             one JSON object; --help lists the other options
"""

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.weights.catalog import resolve
from peers.machine import best_engine, core_count, takes_part
from peers.process import Process, Talk, call, compete
from peers.report import SECONDS, TOKENS, Bar, Check, Figure, Report, compared
from peers.show import main, talk
from peers.timing import Race, Spread

FLOAT32, INT8, NUMPY = "glassformer float32", "glassformer int8", "glassformer numpy"
STORED = "glassformer as stored"
HUGGING_FACE, COMPILED, LLAMA_CPP = "Hugging Face", "Hugging Face compiled", "llama.cpp"
BLAS, KERNEL = "matrix-vector product, BLAS", "matrix-vector product, kernel"
LIMIT = "limit of the memory"
BARS = {"float32": 2.0, "int8": 3.0, "share": 0.8, "llama": 1.0}
STARTS = {
    STORED: """
import sys, glassformer as gf
gf.load(sys.argv[1]).generate(sys.argv[2], max_new_tokens=1, temperature=0)
""",
    LLAMA_CPP: """
import sys, llama_cpp
model = llama_cpp.Llama(sys.argv[1], n_threads=int(sys.argv[3]), n_threads_batch=int(sys.argv[3]), verbose=False)
model(sys.argv[2], max_tokens=1, temperature=0)
""",
}
"""What fresh processes run, on the file, a text, and the number of threads."""
GPT2: dict[str, Any] = {"preset": "gpt2", "changes": {}, "prompt": 32, "new": 64}
SMOLLM2 = {"new": 128, "prompt": 512, "sequences": 8}
MATRIX = {"rows": 65536, "columns": 1024}
"""What is multiplied to measure the bandwidth: 256 MiB, more than caches hold."""
TEXT = "Once upon a time, at the edge of a quiet village between two hills, there lived an old clockmaker who had"
MODELS = ("gpt2", "smollm2", "smollm2-prompt", "smollm2-batch", "smollm2-start")


def bench_generate(
    *, peers: bool, seconds: float, models: Sequence[str] = (), path: Path | None = None, talk: Talk = talk
) -> Iterator[Report]:
    """Measure GPT-2 with random weights and SmolLM2 from its file, or one of them.

    path   of SmolLM2's GGUF file, unless `glassformer pull smollm2` has fetched it
    """
    for name in models or MODELS:
        if name == "gpt2":
            yield gpt2(peers=peers, seconds=seconds, talk=talk)
        else:
            yield smollm2(name, resolve("smollm2") if path is None else path, peers=peers, seconds=seconds, talk=talk)


def gpt2(*, peers: bool, seconds: float, talk: Talk) -> Report:
    """Write tokens with a GPT-2 of random weights, the same on all sides."""
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        talk("writing a GPT-2 with random weights")
        place = f"{folder}/model"
        model = {"folder": place, "preset": GPT2["preset"], "changes": GPT2["changes"]}
        parameters = call("peers.writers:write_model", model)
        vocab = GPT2["changes"].get("vocab", 50257)
        prompt = np.random.default_rng(0).integers(0, vocab, GPT2["prompt"]).tolist()
        job = {"path": place, "prompt": prompt, "new": GPT2["new"]}
        processes = gpt2_contenders(job, peers=peers, notes=notes)
        result, ready = compete(processes, what="generate/gpt2", seconds=seconds, talk=talk, notes=notes)
    baseline = result.fastest([HUGGING_FACE, COMPILED]) or NUMPY
    limit = bandwidth_limit(result, ready)
    return Report(
        name="generate/gpt2",
        title=f"GPT-2, {parameters:,} parameters, {GPT2['new']} tokens after a prompt of {GPT2['prompt']}",
        unit=TOKENS,
        ratio=f"× as fast as {baseline}",
        figures=[
            *rates(result, ready, baseline, GPT2["new"]),
            Figure(LIMIT, limit, Spread.of([limit.median / rate(result, baseline, GPT2["new"]).median])),
        ],
        bars=gpt2_bars(result, ready, baseline, limit),
        checks=[same_tokens(ready)],
        notes=notes,
        facts=generation_facts(ready, result, GPT2["new"]),
    )


def gpt2_contenders(job: dict[str, Any], *, peers: bool, notes: list[str]) -> list[Process]:
    """Return who can write here; say in `notes` who cannot."""
    place = "peers.writers"
    result = [Process(NUMPY, f"{place}:Ours", {**job, "engine": "numpy", "weights": "float32"})]
    if best_engine() == "cpu":
        result.append(Process(FLOAT32, f"{place}:Ours", {**job, "engine": "cpu", "weights": "float32"}))
        result.append(Process(INT8, f"{place}:Ours", {**job, "engine": "cpu", "weights": "int8"}))
        result.append(Process(KERNEL, f"{place}:Bandwidth", {"kernel": True, **MATRIX}))
    else:
        notes.append("Numba is not installed, so the engine cpu was not measured: pip install numba")
    result.append(Process(BLAS, f"{place}:Bandwidth", {"kernel": False, **MATRIX}))
    if takes_part("torch", "transformers", peers=peers, notes=notes):
        result.append(Process(HUGGING_FACE, f"{place}:HuggingFace", {**job, "compiled": False}))
        result.append(Process(COMPILED, f"{place}:HuggingFace", {**job, "compiled": True}))
    return result


def gpt2_bars(result: Race, ready: dict[str, Process], peer: str, limit: Spread) -> list[Bar]:
    """Hold our rates against those of the best peer, and against what the memory allows."""
    found = []
    for name, key in ((FLOAT32, "float32"), (INT8, "int8")):
        if name in ready and peer != NUMPY:
            faster = result.times_faster(name, peer).median
            found.append(Bar(f"{name}: tokens while {peer} writes one", faster, BARS[key]))
    if FLOAT32 in ready:
        share = after_first(ready[FLOAT32], result, GPT2["new"]) / limit.median
        found.append(Bar(f"{FLOAT32}: share of the limit, after the first token", share, BARS["share"]))
    return found


def smollm2(part: str, path: Path | None, *, peers: bool, seconds: float, talk: Talk) -> Report:
    """Race SmolLM2-135M-Instruct from its GGUF file against llama.cpp, in one of four kinds of work."""
    notes: list[str] = []
    model = "SmolLM2-135M-Instruct from its GGUF file"
    if path is None:
        notes.append("SmolLM2 is not here, so it was not measured: glassformer pull smollm2, or pass --model FILE")
        return Report(f"generate/{part}", model, TOKENS, "", [], notes=notes)
    tokens, work, wanted = smollm2_contenders(part, str(path))
    if not takes_part("llama_cpp", peers=peers, notes=notes):
        wanted = [process for process in wanted if process.name != LLAMA_CPP]
    result, ready = compete(wanted, what=f"generate/{part}", seconds=seconds, talk=talk, notes=notes)
    baseline = LLAMA_CPP if LLAMA_CPP in ready else STORED
    bars = []
    if LLAMA_CPP in ready:
        faster = result.times_faster(STORED, LLAMA_CPP).median
        bars.append(Bar(f"{STORED}: times as fast as {LLAMA_CPP}", faster, BARS["llama"]))
    return Report(
        name=f"generate/{part}",
        title=f"{model}, {work}",
        unit=TOKENS if tokens else SECONDS,
        ratio=f"× as fast as {baseline}",
        figures=rates(result, ready, baseline, tokens) if tokens else compared(result, baseline),
        bars=bars,
        notes=notes,
        facts=generation_facts(ready, result, tokens) if part == "smollm2" else {},
    )


def smollm2_contenders(part: str, path: str) -> tuple[int, str, list[Process]]:
    """Return how many tokens a step of this work is, what it is called, and who can do it."""
    place, threads, new, count = "peers.writers", core_count(), SMOLLM2["new"], SMOLLM2["sequences"]
    prompt = call(f"{place}:encode", {"path": path, "text": TEXT})
    if part == "smollm2-start":
        given = [path, TEXT, str(threads)]
        jobs = [(name, f"{place}:FreshStart", {"program": STARTS[name], "arguments": given}) for name in STARTS]
        return 0, "from the start of Python to the first token", [Process(*job) for job in jobs]
    ours, theirs = {"path": path, "engine": best_engine(), "weights": None}, {"path": path, "threads": threads}
    job: dict[str, Any] = {"prompt": prompt, "new": new}
    kind, tokens, work = "", new, f"{new} tokens after a prompt of {len(prompt)}"
    if part == "smollm2-prompt":
        tokens, work = SMOLLM2["prompt"], f"a prompt of {SMOLLM2['prompt']} tokens, to the first token after it"
        job = {"prompt": (prompt * tokens)[:tokens], "new": 1}
    elif part == "smollm2-batch":
        kind, tokens, work = "Batch", count * new, f"{count} sequences at once, {work}"
        job = {"prompts": [prompt[i:] + prompt[:i] for i in range(count)], "new": new}
    jobs = [(STORED, f"{place}:Ours{kind}", {**ours, **job}), (LLAMA_CPP, f"{place}:LlamaCpp{kind}", {**theirs, **job})]
    return tokens, work, [Process(*own) for own in jobs]


def rates(result: Race, ready: dict[str, Process], baseline: str, new: int) -> list[Figure]:
    """Return the tokens per second of everyone who writes, the reading of the prompt included."""
    writers = [name for name, process in ready.items() if "tokens" in process.facts]
    return [Figure(name, rate(result, name, new), result.times_faster(name, baseline)) for name in writers]


def rate(result: Race, name: str, new: int) -> Spread:
    """Return the tokens per second of one contender."""
    return result.seconds(name).inverted(new)


def after_first(process: Process, result: Race, new: int) -> float:
    """Return the tokens per second once the first is there: (new − 1) / (all seconds − seconds to the first)."""
    return (new - 1) / (result.median(process.name) - process.seconds_to_first(result))


def bandwidth_limit(result: Race, ready: dict[str, Process]) -> Spread:
    """Return the tokens per second at which all weights are read as fast as a matrix-vector product reads its matrix.

    limit = bandwidth / bytes of weights per token
    """
    best = result.fastest([BLAS, KERNEL])
    assert best is not None
    bytes_per_token = ready[NUMPY].facts["bytes_per_token"]
    return result.seconds(best).inverted(ready[best].facts["bytes"] / bytes_per_token)


def same_tokens(ready: dict[str, Process]) -> Check:
    """Compare the tokens of those who compute in float32: how many differ."""
    answers = [ready[name].facts["tokens"] for name in (NUMPY, FLOAT32, HUGGING_FACE) if name in ready]
    wrong = max(sum(a != b for a, b in zip(answers[0], answer, strict=True)) for answer in answers)
    return Check("tokens that differ, float32", wrong, 0)


def generation_facts(ready: dict[str, Process], result: Race, new: int) -> dict[str, Any]:
    """Return what else was found out about each: bytes, seconds to the first token, the rate after it, the tokens."""
    facts = {name: dict(process.facts) for name, process in ready.items()}
    for name, process in ready.items():
        if process.first:
            facts[name]["seconds_to_first"] = process.seconds_to_first(result)
            facts[name]["tokens_per_second_after_first"] = after_first(process, result, new)
    return facts


def _add(parser: ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, metavar="FILE", help="SmolLM2's GGUF file, unless it was pulled")


def _measure(given: Namespace) -> Iterator[Report]:
    return bench_generate(peers=given.peers, seconds=given.seconds, models=given.only, path=given.model)


if __name__ == "__main__":
    main(__doc__, _measure, parts=MODELS, add=_add)
