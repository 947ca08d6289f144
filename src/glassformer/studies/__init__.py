"""Studies: experiments with seeds and error bars, from a question to a table, figures and a finding.

rows = gf.study({"lr": [0.001, 0.01]}, "loss", task="majority")      a grid of your own
gf.studies.studies()                                                 those that come with the package, by name
result = gf.studies.run_study("parts", quick=True)                   result.findings, result.rows
gf.studies.compared(study, result.rows)                              each setting beside the whole
gf.studies.Study(name=…, question=…, grid=…, measure=…)              one of your own: docs/guides/studies.md
"""

from ..core.arguments import public
from .catalog import studies
from .finding import Comparison, compared
from .measures import check_training, on_accelerator, trained, training
from .report import StudyResult, read_study
from .running import run_study, study
from .study import Rows, Study, Summary

__all__ = [
    "Comparison", "Rows", "Study", "StudyResult", "Summary", "check_training", "compared", "on_accelerator",
    "read_study", "run_study", "studies", "study", "trained", "training",
]  # fmt: skip
__dir__ = __all__.copy
public(globals(), __all__)
