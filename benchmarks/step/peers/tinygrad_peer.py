"""tinygrad: a step under its JIT, with the C that it writes built by clang."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DEV", "CPU")
from tinygrad import Tensor, TinyJit

from .case import RATE, Case, forward


def conv(x: Any, weight: Any, bias: Any = None, *, stride: int, padding: int, groups: int) -> Any:
    return x.conv2d(weight, bias, groups=groups, stride=stride, padding=padding)


def norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *, eps: float, momentum: float
) -> tuple[Any, Any, Any]:
    m = x.mean((0, 2, 3))
    v = (x - m.reshape(1, -1, 1, 1)).square().mean((0, 2, 3))
    y = x.batchnorm(weight, bias, m, (v + eps).rsqrt())
    count = x.numel() // x.shape[1]
    unbiased = v.detach() * (count / (count - 1))
    return y, mean + momentum * (m.detach() - mean), variance + momentum * (unbiased - variance)


OPS: dict[str, Callable[..., Any]] = {
    "conv": conv,
    "norm": norm,
    "max_pool": lambda x, kernel, stride, padding: x.max_pool2d(kernel, stride, padding=padding),
    "relu": Tensor.relu,
    "relu6": Tensor.relu6,
    "add": Tensor.add,
    "pool": lambda x: x.mean((2, 3)),
    "flatten": lambda x: x.flatten(1),
    "linear": lambda x, weight, bias: x.linear(weight.T, bias),
}


def prepare(case: Case, threads: int, variant: str) -> Callable[[], float]:
    names = [n for n in case.tensors if not n.endswith("num_batches_tracked")]
    tensors = {n: Tensor(case.tensors[n]).realize() for n in names}
    trained = [tensors[name] for name in case.trained]
    x, y = Tensor(case.x).realize(), Tensor(case.y).realize()
    Tensor.training = True

    def step() -> Any:
        logits, changed = forward(case.layers, x, tensors, OPS)
        loss = logits.sparse_categorical_crossentropy(y)
        for tensor, slope in zip(trained, loss.gradient(*trained), strict=True):
            tensor.assign(tensor - RATE * slope)
        for name, value in changed.items():
            tensors[name].assign(value)
        return loss.realize(*trained, *(tensors[name] for name in changed))

    jitted = TinyJit(step)
    return lambda: float(jitted().item())
