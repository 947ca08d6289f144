"""A training step in three sizes, in turns with PyTorch, torch.compile, JAX and the bare matrix products; its memory.

python benchmarks/train_step.py            tables, the same as `glassformer bench train`
python benchmarks/train_step.py --json     one JSON object; --help lists the other options
"""

import sys

from glassformer.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "train"]
    main()
