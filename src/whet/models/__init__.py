"""Networks for on-device training, in plain PyTorch, and loaders for published weights."""

from ..frontend.jax import from_jax, to_jax
from ..frontend.keras import from_keras, to_keras
from ..frontend.tflite import from_tflite
from .gguf import Gguf, GgufTensor
from .int8_backbone import load_int8_backbone
from .inverted import BlockSpec, InvertedResidual, InvertedResidualNet, make_divisible
from .llama import Llama, LlamaConfig
from .load_gguf import Blocks, from_gguf
from .load_onnx import from_onnx
from .mobilenet import mobilenet_v2, mobilenet_v2_from_old_layout
from .proxyless import mcunet_5fps, proxyless_nas_mobile
from .resnet import resnet18, resnet50
from .small import ds_cnn, lenet, load_ds_cnn, mlp

__all__ = [
    "BlockSpec",
    "Blocks",
    "Gguf",
    "GgufTensor",
    "InvertedResidual",
    "InvertedResidualNet",
    "Llama",
    "LlamaConfig",
    "ds_cnn",
    "from_gguf",
    "from_jax",
    "from_keras",
    "from_onnx",
    "from_tflite",
    "lenet",
    "load_ds_cnn",
    "load_int8_backbone",
    "make_divisible",
    "mcunet_5fps",
    "mlp",
    "mobilenet_v2",
    "mobilenet_v2_from_old_layout",
    "proxyless_nas_mobile",
    "resnet18",
    "resnet50",
    "to_jax",
    "to_keras",
]
