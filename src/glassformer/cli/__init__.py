"""The command line: the only part that prints.

stdout carries data, stderr messages. Exit code 0: done; 1: failed; 2: misused; 130: interrupted;
141: the reader of stdout left; 143: ended by SIGTERM.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command `glassformer`."""
    try:
        from .app import run  # inside the block: Ctrl-C while it loads is no traceback either
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    run()
