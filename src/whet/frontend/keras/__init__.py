"""Keras 3 models as PyTorch modules; the only package that imports Keras."""

from .load import KerasModel as KerasModel
from .load import from_keras as from_keras
from .load import to_keras as to_keras
