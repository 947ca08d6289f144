"""The files whose tests take longest."""

LONG_FILES = (
    "proofs/test_layer_contract.py",
    "proofs/test_mutations.py",
    "engines/jax/test_reader.py",
    "cluster/test_processes.py",
    "ops/test_jax.py",
    "engines/cpu/test_contract.py",
    "engines/cpu/test_block.py",
    "models/test_jax.py",
    "engines/jax/test_trainer.py",
    "engines/jax/test_meshes.py",
    "test_commands.py",
    "cli/test_generate.py",
    "cli/test_finetune.py",
    "api/test_files.py",
    "api/test_loop.py",
    "web/test_page_published.py",
    "cluster/test_watch.py",
    "cli/test_train_processes.py",
    "test_edits.py",
    "proofs/test_kernel_mutations.py",
)
"""They come first, since all tests of a file run in one process: at the end none is left with a long one alone.

The first and the last two need most kernels. What the first is compiling would be compiled a second time beside it: so
files that need JAX alone follow, and then those of kernels.
"""
