"""The contenders of a training step, each made inside its own process by `worker`: ours, PyTorch, JAX and the floor."""

import contextlib
import functools
import itertools
import time
from typing import Any

import numpy as np

from glassformer.core.arrays import Array, Tree
from glassformer.core.dispatch import current, set_engine
from glassformer.core.execution import Execution
from glassformer.core.threads import cores
from glassformer.core.tree import count, flatten, tree_map
from glassformer.engines.cpu.cores import each
from glassformer.engines.cpu.products import multiply_into
from glassformer.models import Batch, Model, build
from glassformer.training import AdamW
from glassformer.training.loop import suitable_threads, training_steps
from glassformer.training.recipe import Recipe

from .twin import torch_optimizer, torch_twin, torch_weights

LR, BETA2, DECAY = 1e-3, 0.99, 0.1
BATCHES = 8
KEPT = 6  # losses that are told


class Problem:
    """The same task for everyone: a GPT-2 without biases or dropout, its first weights, and batches."""

    def __init__(
        self, *, layers: int, width: int, heads: int, length: int, batch: int, vocab: int, tile: int | None = None
    ) -> None:
        sizes: dict[str, Any] = {"layers": layers, "width": width, "heads": heads, "context": length, "vocab": vocab}
        self.model: Model = build("shakespeare", Execution(tile=tile), **sizes)
        self.batch = batch
        rng = np.random.default_rng(0)
        shape = (BATCHES, batch, length + 1)
        # A row of increasing tokens with a few changed, so that there is something to learn and losses move.
        rows = (np.arange(length + 1) + rng.integers(0, vocab, (BATCHES, batch, 1))) % vocab
        rows = np.where(rng.random(shape) < 0.2, rng.integers(0, vocab, shape), rows)
        self.batches = [Batch(*map(np.ascontiguousarray, (part[:, :-1], part[:, 1:]))) for part in rows]

    def params(self) -> Tree:
        """Return the first weights."""
        return self.model.init(0)


class Prepared:
    """What a training loop asks of a data set, of batches that are there already: reading is not what is measured."""

    def __init__(self, batches: list[Batch]) -> None:
        self.stored = batches

    def batch(self, step: int, size: int, seed: int, *, rows: Any = None) -> Batch:
        """Return the next of the batches, over and over, or some of its rows."""
        batch = self.stored[step % len(self.stored)]
        return batch if rows is None else Batch(*(None if array is None else array[rows] for array in batch))


class Trainer:
    """Base of the contenders: keeps the first losses, by which the parent sees that all do the same."""

    parameters = 0

    def __init__(self) -> None:
        self.losses: list[float] = []

    def advance(self) -> float:
        """Take a training step and return the loss before it."""
        raise NotImplementedError

    def step(self) -> None:
        """Take a training step."""
        loss = self.advance()
        if len(self.losses) < KEPT:
            self.losses.append(loss)

    def facts(self) -> dict[str, Any]:
        """Return the first losses and the number of parameters."""
        return {"losses": self.losses, "parameters": self.parameters}


class Ours(Trainer):
    """Our training loop as a session runs it: gradients, their norm, the optimizer, the guard against infinities."""

    def __init__(self, *, engine: str, **sizes: int) -> None:
        super().__init__()
        set_engine(engine)
        problem = Problem(**sizes)
        params = problem.params()
        self.parameters = count(params)
        plain: dict[str, Any] = {"steps": 1 << 40, "schedule": "constant", "warmup": 0, "clip": None}
        shards = current().executor.shards(problem.model.config, problem.batch)
        recipe = Recipe(batch=problem.batch, lr=LR, beta2=BETA2, weight_decay=DECAY, shards=shards, **plain)
        self.threads = contextlib.ExitStack()
        self.threads.enter_context(suitable_threads(problem.model.config, problem.batch))
        trainer = current().executor.trainer(problem.model, recipe)
        data: Any = Prepared(problem.batches)
        self.steps = training_steps(trainer, data, trainer.first(params), keep=lambda *_: None)

    def advance(self) -> float:
        return next(self.steps)[1].loss


class Torch(Trainer):
    """PyTorch: forward, zero_grad, backward and its fused AdamW; with `compiled`, the model by torch.compile."""

    def __init__(self, *, compiled: bool, **sizes: int) -> None:
        super().__init__()
        import torch

        problem = Problem(**sizes)
        twin = torch_twin(problem.model.config, problem.params())
        self.parameters = sum(p.numel() for p in twin.parameters())
        self.optimizer = torch_optimizer(twin, lr=LR, beta2=BETA2, weight_decay=DECAY)
        self.loss = torch.compile(twin) if compiled else twin
        batches = [(torch.tensor(batch.tokens), torch.tensor(batch.targets)) for batch in problem.batches]
        self.batches = itertools.cycle(batches)

    def advance(self) -> float:
        loss = self.loss(*next(self.batches))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Jax(Trainer):
    """JAX: our forward pass and our AdamW traced by jax.jit, differentiated by jax.grad, buffers donated."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        import jax

        problem = Problem(**sizes)
        optimizer = AdamW(beta2=BETA2, weight_decay=DECAY)

        def update(params: Tree, state: Tree, batch: Batch) -> tuple[Any, Tree, Tree]:
            loss, grads = jax.value_and_grad(problem.model.loss)(params, batch)
            return loss, *optimizer.update(params, grads, state, lr=LR)

        self.update = jax.jit(update, donate_argnums=(0, 1))
        self.params = tree_map(jax.numpy.asarray, problem.params())
        self.parameters = count(self.params)
        self.state = optimizer.init(self.params)
        arrays = [Batch(*map(jax.numpy.asarray, (batch.tokens, batch.targets))) for batch in problem.batches]
        self.batches = itertools.cycle(arrays)
        self.wait = jax.block_until_ready

    def advance(self) -> float:
        loss, self.params, self.state = self.update(self.params, self.state, next(self.batches))
        self.wait((self.params, self.state))
        return float(loss)


class Floor(Trainer):
    """The matrix products of a step and nothing else, on arrays that are there: no step can be faster by much.

    Each of `shards` parts of the batch has its products on one core; one shard leaves the threads to the BLAS.
    Attention's products are those of full squares: what a causal mask would let one skip is counted.
    """

    def __init__(self, *, shards: int, layers: int, **sizes: int) -> None:
        super().__init__()
        rows = [len(part) for part in np.array_split(np.arange(sizes["batch"]), shards) if len(part)]
        self.parts = [products(layers, **{**sizes, "batch": batch}) for batch in rows]

    def step(self) -> None:
        from glassformer.engines.cpu.cores import each

        each([functools.partial(multiply, part) for part in self.parts])


Product = tuple[Array, Array, Array]


def matrix_rate(side: int = 2048, rounds: int = 10) -> float:
    """Return the FLOPs in a second of large matrix products in float32, one on each core: the best of some rounds."""
    a, b = np.random.default_rng(0).random((2, side, side), dtype=np.float32)
    products = [functools.partial(multiply_into, a, b, np.empty_like(a)) for _ in range(cores())]
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        each(products)
        seconds.append(time.perf_counter() - began)
    return len(products) * 2 * side**3 / min(seconds)


def multiply(products: list[Product]) -> None:
    """Compute every product once."""
    for a, b, out in products:
        np.matmul(a, b, out=out)


def products(layers: int, *, width: int, heads: int, length: int, batch: int, vocab: int) -> list[Product]:
    """Return the products of all blocks, which share their arrays, and those of the head."""
    N, D, F, T, C = batch * length, width, 4 * width, length, width // heads
    # Query, key and value at once, then the output, and both maps of the feed-forward layer.
    maps = [*linear(N, D, 3 * D), *linear(N, D, D), *linear(N, D, F), *linear(N, F, D)]
    return [*maps, *attention((batch * heads,), T, C)] * layers + linear(N, D, vocab)


def linear(N: int, inputs: int, outputs: int) -> list[Product]:
    """Return the operands and results of y = x w, dx = dy wᵀ and dw = xᵀ dy."""
    x, w, y = normal(N, inputs), normal(inputs, outputs), normal(N, outputs)
    return [(x, w, y), (normal(N, outputs), w.T, normal(N, inputs)), (x.T, y, normal(inputs, outputs))]


def attention(batch: tuple[int, ...], T: int, C: int) -> list[Product]:
    """Return those of s = q kᵀ, y = a v, and of the four products that bring dy back to q, k, v and a."""
    q, k, v, y = (normal(*batch, T, C) for _ in range(4))
    s, a, da = (normal(*batch, T, T) for _ in range(3))
    return [
        (q, k.mT, s),
        (a, v, y),
        (y, v.mT, da),
        (a.mT, y, normal(*batch, T, C)),
        (s, k, normal(*batch, T, C)),
        (s.mT, q, normal(*batch, T, C)),
    ]


def normal(*shape: int) -> Array:
    """Return random numbers, which multiply no faster and no slower than real ones."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def gradient_difference(*, engine: str, **sizes: int) -> dict[str, float]:
    """Compare a step's loss and gradients with the twin's: the largest difference, by the size of what is compared."""
    import torch

    set_engine(engine)
    problem = Problem(**sizes)
    params, batch = problem.params(), problem.batches[0]
    loss, grads = problem.model.loss_and_grads(params, batch)
    twin = torch_twin(problem.model.config, params)
    theirs = twin(torch.tensor(batch.tokens), torch.tensor(batch.targets))
    theirs.backward()
    ours = torch_weights(grads)
    wrong = 0.0
    for name, p in twin.named_parameters():
        right = p.grad.numpy()
        wrong = max(wrong, float(np.max(np.abs(ours[name] - right)) / np.max(np.abs(right))))
    return {"loss": abs(float(loss) - theirs.item()) / theirs.item(), "gradients": wrong, "arrays": len(flatten(grads))}
