"""Knowledge distillation: a student learns from labels and from a teacher.

losses      the formulas
terms       the losses to choose from: logits, features, attention maps, relations, weights
adapters    linear maps between layers of different shapes
taps        outputs of layers inside a model
objective   the sum of all terms
distiller   a student and its teacher, in PyTorch and as a compiled program
training    a ready loop
"""

from .distiller import Distiller
from .objective import Objective
from .terms import Angles, Attention, Distances, Features, Logits, Selectivity, Term, Weights
from .training import distill, with_teacher

__all__ = [
    "Angles", "Attention", "Distances", "Distiller", "Features", "Logits", "Objective",
    "Selectivity", "Term", "Weights", "distill", "with_teacher",
]  # fmt: skip
