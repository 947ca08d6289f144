"""How fast this is, measured on your own machine against what else there is.

    train       a training step: PyTorch, JAX, and the matrix products alone; and the memory it takes
    generate    tokens per second: Hugging Face, llama.cpp, and the bandwidth of the memory
    attention   attention at growing lengths: PyTorch's, dense, tiled, windowed and strided
    startup     from the start of a process to its first training step, or to the end of a command that only prints

Every contender runs in a process of its own and they take turns; see `timing`. What is not installed is left out and
said. Each of these modules has a function `bench_…(peers, seconds, talk)` that yields `Report`s for `glassformer bench`
to print: `bench_train`, `bench_generate`, `bench_attention` and `bench_startup`. Nothing is imported here: a process
whose start is measured begins with this file.
"""
