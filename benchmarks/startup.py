"""From the start of a process to the end of its first training step, beside its peers; and of commands that only print.

python benchmarks/startup.py            tables, the same as `glassformer bench startup`
python benchmarks/startup.py --json     one JSON object; --help lists the other options
"""

import sys

from glassformer.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "startup"]
    main()
