"""Labs: functions to fill in, and a checker that names the wrong term.

    gf.labs.check(softmax_backward)                       # a function of this notebook, against the lab of its name
    gf.labs.check_file("softmax_backward.py")             # a file, in a process of its own
    gf.labs.check_backward(forward, backward, example)    # the gradient of any function of your own

`glassformer lab` lists the labs and starts, checks and grades them.
"""

from ..core.arguments import public
from .check import Verdict, check, check_backward, check_file
from .desk import grade, hint, solution, start
from .draw import Draw
from .lab import Exercise, Lab, get_lab, list_labs

__all__ = [
    "Draw", "Exercise", "Lab", "Verdict", "check", "check_backward", "check_file", "get_lab", "grade", "hint",
    "list_labs", "solution", "start",
]  # fmt: skip
__dir__ = __all__.copy
public(globals(), __all__)
