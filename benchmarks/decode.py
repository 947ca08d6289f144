"""Tokens per second of GPT-2 and SmolLM2, in turns with Hugging Face and llama.cpp, and the limit of the memory.

python benchmarks/decode.py                    tables
python benchmarks/decode.py --only smollm2     one model
python benchmarks/decode.py --json             one JSON object; --help lists the other options
"""

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.weights.registry import resolve
from peers.machine import best_engine, core_count, takes_part
from peers.process import Process, Talk, call, compete
from peers.report import TOKENS, Bar, Check, Figure, Report
from peers.show import main, talk
from peers.timing import Race, Spread

FLOAT32, INT8, NUMPY = "glassformer float32", "glassformer int8", "glassformer numpy"
STORED = "glassformer as stored"
HUGGING_FACE, COMPILED, LLAMA_CPP = "Hugging Face", "Hugging Face compiled", "llama.cpp"
BLAS, KERNEL = "matrix-vector product, BLAS", "matrix-vector product, kernel"
LIMIT = "limit of the memory"
BARS = {"float32": 2.0, "int8": 3.0, "share": 0.8, "llama": 1.0}
GPT2: dict[str, Any] = {"preset": "gpt2", "changes": {}, "prompt": 32, "new": 64}
SMOLLM2 = {"new": 128}
MATRIX = {"rows": 65536, "columns": 1024}
"""What is multiplied to measure the bandwidth: 256 MiB, more than caches hold."""
TEXT = "Once upon a time, at the edge of a quiet village between two hills, there lived an old clockmaker who had"
MODELS = ("gpt2", "smollm2")


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
            yield smollm2(resolve("smollm2") if path is None else path, peers=peers, seconds=seconds, talk=talk)


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


def smollm2(path: Path | None, *, peers: bool, seconds: float, talk: Talk) -> Report:
    """Write tokens with SmolLM2-135M-Instruct from its GGUF file."""
    notes: list[str] = []
    title = f"SmolLM2-135M-Instruct from its GGUF file, {SMOLLM2['new']} tokens"
    if path is None:
        notes.append("SmolLM2 is not here, so it was not measured: glassformer pull smollm2, or pass --model FILE")
        return Report("generate/smollm2", title, TOKENS, "", [], notes=notes)
    place = "peers.writers"
    prompt = call(f"{place}:encode", {"path": str(path), "text": TEXT})
    job = {"path": str(path), "prompt": prompt, "new": SMOLLM2["new"]}
    wanted = [Process(STORED, f"{place}:Ours", {**job, "engine": best_engine(), "weights": None})]
    if takes_part("llama_cpp", peers=peers, notes=notes):
        wanted.append(Process(LLAMA_CPP, f"{place}:LlamaCpp", {**job, "threads": core_count()}))
    result, ready = compete(wanted, what="generate/smollm2", seconds=seconds, talk=talk, notes=notes)
    baseline = LLAMA_CPP if LLAMA_CPP in ready else STORED
    bars = []
    if LLAMA_CPP in ready:
        faster = result.times_faster(STORED, LLAMA_CPP).median
        bars.append(Bar(f"{STORED}: tokens while {LLAMA_CPP} writes one", faster, BARS["llama"]))
    return Report(
        name="generate/smollm2",
        title=f"{title} after a prompt of {len(prompt)}",
        unit=TOKENS,
        ratio=f"× as fast as {baseline}",
        figures=rates(result, ready, baseline, SMOLLM2["new"]),
        bars=bars,
        notes=notes,
        facts=generation_facts(ready, result, SMOLLM2["new"]),
    )


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
