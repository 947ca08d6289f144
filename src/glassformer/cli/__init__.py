"""The command line: the only part that prints.

stdout carries data, stderr talk. Exit code 0: done; 1: failed; 2: misused; 130: interrupted;
143: ended by SIGTERM.
"""

from .app import main

__all__ = ["main"]
