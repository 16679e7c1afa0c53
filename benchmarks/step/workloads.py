"""The networks, inputs and schemes whose steps are measured."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.step.peers.case import RATE, Case

MCUNET = "mcunet_5fps(10)"
MCUNET_FOLDED = "mcunet_5fps(10, folded=True)"
SMALL = "mobilenet_v2(1000, 0.35, dropout=0.0)"
SMALL_FOLDED = "mobilenet_v2(10, 0.35, feature_mix=False, folded=True, dropout=0.0)"


@dataclass(frozen=True)
class Workload:
    make: str  # an expression in whet.models
    pixels: int
    batch: int = 1
    scheme: str = "full"

    @property
    def training(self) -> bool:
        """Batch norm on statistics of the batch: only where everything trains."""
        return self.scheme == "full"


# The last third of the blocks is last-5 of MCUNet and last-6 of MobileNetV2.
WORKLOADS = {
    "mcunet": Workload(MCUNET, 128),
    "mbv2-0.35": Workload(SMALL, 128),
    "mbv2-0.35, batch 8": Workload(SMALL, 128, 8),
    "mbv2": Workload("mobilenet_v2(1000, dropout=0.0)", 224),
    "resnet18": Workload("resnet18(1000)", 224),
    "resnet18, batch 8": Workload("resnet18(1000)", 224, 8),
    "resnet50": Workload("resnet50(1000)", 224),
    "mcunet, last": Workload(MCUNET_FOLDED, 128, 1, "last"),
    "mcunet, bias+last": Workload(MCUNET_FOLDED, 128, 1, "bias+last"),
    "mcunet, last-5": Workload(MCUNET_FOLDED, 128, 1, "last-5"),
    "mcunet, 99 KB": Workload(MCUNET_FOLDED, 128, 1, "mcunet-5fps-99kb"),
    "mbv2-0.35, last": Workload(SMALL_FOLDED, 128, 1, "last"),
    "mbv2-0.35, bias+last": Workload(SMALL_FOLDED, 128, 1, "bias+last"),
    "mbv2-0.35, last-6": Workload(SMALL_FOLDED, 128, 1, "last-6"),
    "mbv2-0.35, 99 KB": Workload(SMALL_FOLDED, 128, 1, "mbv2-w0.35-99kb"),
}

PROXYLESS_FOLDED = "proxyless_nas_mobile(10, 0.3, feature_mix=False, folded=True)"
WORKLOADS_INT8 = {
    "mcunet, 49 KB": Workload(MCUNET_FOLDED, 128, 1, "mcunet-5fps-49kb"),
    "mcunet, 99 KB": WORKLOADS["mcunet, 99 KB"],
    "mbv2-0.35, 49 KB": Workload(SMALL_FOLDED, 128, 1, "mbv2-w0.35-49kb"),
    "mbv2-0.35, 99 KB": WORKLOADS["mbv2-0.35, 99 KB"],
    "proxyless-0.3, 49 KB": Workload(PROXYLESS_FOLDED, 128, 1, "proxyless-w0.3-49kb"),
    "proxyless-0.3, 98 KB": Workload(PROXYLESS_FOLDED, 128, 1, "proxyless-w0.3-98kb"),
}


def calibrate(model: Any, x: Any) -> None:
    """Give every convolution of a net without batch norm an output of mean 0 and variance 1.

    As they come, depthwise layers let the signal fade until the loss is log(classes), whatever the
    net computes: comparing losses would show nothing.
    """
    import torch

    def scale(conv: Any, _: Any, y: Any) -> Any:
        deviation, mean = torch.std_mean(y, (0, 2, 3))
        conv.weight /= deviation.reshape(-1, 1, 1, 1)
        conv.bias -= mean
        conv.bias /= deviation
        return (y - mean.reshape(1, -1, 1, 1)) / deviation.reshape(1, -1, 1, 1)

    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    hooks = [module.register_forward_hook(scale) for module in convolutions]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()


def reference(model: Any, trained: Sequence[str], x: Any, y: Any) -> list[float]:
    """PyTorch's loss before and after one update, in double precision.

    In single precision rounding grows with every update: after two of them the change in
    ResNet-50's loss is a tenth off, in PyTorch's own two layouts as well.
    """
    import torch

    model, x = copy.deepcopy(model).double(), x.double()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    first = torch.nn.functional.cross_entropy(model(x), y)
    first.backward()
    sgd.step()
    with torch.no_grad():
        second = torch.nn.functional.cross_entropy(model(x), y)
    return [first.item(), second.item()]


def make_case(workload: Workload) -> Case:
    """The network with its first weights, the batch, and PyTorch's first losses."""
    import torch

    import whet
    from benchmarks.step.peers.trace import trace
    from whet import models

    torch.manual_seed(0)
    model = eval(workload.make, vars(models)).train(workload.training)
    x = torch.randn(workload.batch, 3, workload.pixels, workload.pixels)
    y = torch.arange(workload.batch) % 10
    trained = dict.fromkeys(name for name, _ in model.named_parameters())
    if workload.scheme != "full":
        calibrate(model, torch.randn(8, *x.shape[1:]))
        trained = whet.compile(model, (x,), update=workload.scheme).trained
    partial = any(part is not None for part in trained.values())
    tensors = {name: t.numpy().copy() for name, t in model.state_dict().items()}
    layers = trace(model)
    losses = reference(model, list(trained), x, y)
    words = (workload.make, workload.scheme, workload.training)
    return Case(*words, list(trained), partial, layers, losses, tensors, x.numpy(), y.numpy())
