"""A machine with one GPU, played on a CPU."""

from types import SimpleNamespace

import pytest

from one_gpu import attend, attend_backward, interpret
from oracles import require


@pytest.fixture
def on_gpu(monkeypatch):
    """As on a machine with one GPU, as far as JAX tells."""
    jax = require("jax")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(compute_capability="9.0")])
    return monkeypatch


@pytest.fixture
def interpreted(on_gpu):
    """Kernels of our own take arrays of any size, and are interpreted; cuDNN's are plain JAX."""
    from glassformer.engines.jax import attention, fused

    interpret(on_gpu)
    for name, size in {"_RUN": 16, "_COLUMNS": 16, "_LEAST": 1}.items():
        on_gpu.setattr(fused, name, size)
    home = __import__("jax._src.cudnn.fused_attention_stablehlo", fromlist=["MaskType"])
    on_gpu.setattr(home, "_dot_product_attention_fwd_p_wrapper", SimpleNamespace(bind=attend))
    on_gpu.setattr(home, "_dot_product_attention_bwd_p_wrapper", SimpleNamespace(bind=attend_backward))
    attention.cudnn_pair.cache_clear()
    yield on_gpu
    attention.cudnn_pair.cache_clear()
