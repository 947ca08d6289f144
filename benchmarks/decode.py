"""Tokens per second of GPT-2 and SmolLM2, in turns with Hugging Face and llama.cpp, and the limit of the memory.

python benchmarks/decode.py            tables, the same as `glassformer bench generate`
python benchmarks/decode.py --json     one JSON object; --help lists the other options
"""

import sys

from glassformer.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "generate"]
    main()
