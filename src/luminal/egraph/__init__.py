"""Equal programs in one e-graph: encode, saturate with the rules, decode. egglog is named here
only.
"""

from luminal.egraph.classes import Classes, EClass, Report, RuleRow, Spelling
from luminal.egraph.graphviz import to_dot
from luminal.egraph.saturate import Limits, saturate

__all__ = [
    "Classes",
    "EClass",
    "Limits",
    "Report",
    "RuleRow",
    "Spelling",
    "saturate",
    "to_dot",
]
