"""The harness of the benchmarks, and the peers they race: PyTorch, JAX, Hugging Face transformers and llama.cpp.

    timing, process, worker       contenders in processes of their own that take turns
    report, show                  figures, bars and checks, and how they are printed
    machine, memory               what a figure was measured on, and the memory of a process
    steps, twin, first_step       contenders of a training step
    writers, attention_steps      contenders of generation and of attention

Peers that are not installed are left out, and the report says so. Nothing is imported here: a process whose start is
measured begins with this file.
"""
