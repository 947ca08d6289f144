"""The museum of bugs: mistakes in Transformers, what training looks like with each, and the check that catches it.

bugs = gf.bugs.museum()            every exhibit, by name
with gf.bugs.plant(bug): …         the package computes with the mistake, on the engine numpy
bug.run_check()                    what the check that catches it says
bug.train(seeds=3)                 loss curves with it
"""

from ..core.arguments import public
from .checks import CHECKS, Finding
from .exhibits import Exhibit, museum
from .planted import PlantedBug, plant, planted_bugs
from .training import Curves, right_curves

__all__ = [
    "CHECKS", "Curves", "Exhibit", "Finding", "PlantedBug", "museum", "plant", "planted_bugs", "right_curves",
]  # fmt: skip
__dir__ = __all__.copy
public(globals(), __all__, has_makers=True)
