"""LeNet-5 in TensorFlow.js, in the same page of Chromium as a module of whet.

The npm package @tensorflow/tfjs has two back ends that need no GPU. `cpu`, in JavaScript, trains;
`wasm` has no gradient of a convolution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.wasm.chromium import SITE, site

SCRIPT = "dist/tf.min.js"
TRAIN = """
    async ({ weights, x, label, steps, lr }) => {
      await tf.setBackend("cpu");
      const conv = (filters, padding) =>
        tf.layers.conv2d({ filters, kernelSize: 5, padding, activation: "relu" });
      const pool = () => tf.layers.maxPooling2d({ poolSize: 2, strides: 2 });
      const dense = (units, activation) => tf.layers.dense({ units, activation });
      const net = tf.sequential({ layers: [
        tf.layers.inputLayer({ inputShape: [28, 28, 1] }),
        conv(6, "same"), pool(), conv(16, "valid"), pool(), tf.layers.flatten(),
        dense(120, "relu"), dense(84, "relu"), dense(10),
      ] });
      net.setWeights(weights.map(({ shape, values }) => tf.tensor(values, shape)));
      const picture = tf.tensor(x, [1, 28, 28, 1]), answer = tf.oneHot([label], 10).toFloat();
      const sgd = tf.train.sgd(lr), losses = [], times = [];
      for (let step = 0; step < steps; step++) {
        const start = performance.now();
        const loss = sgd.minimize(
          () => tf.losses.softmaxCrossEntropy(answer, net.apply(picture, { training: true })),
          true,
        );
        losses.push((await loss.data())[0]);
        times.push(performance.now() - start);
        loss.dispose();
      }
      return { losses, times, version: tf.version.tfjs };
    }
"""


def stored(model: nn.Module) -> list[dict[str, Any]]:
    """Weights as TensorFlow.js has them: channels last, and the input of a layer first."""
    found = []
    for name, parameter in model.named_parameters():
        array = parameter.detach()
        if name == "fc1.weight":  # it reads what was [16, 5, 5]
            array = array.reshape(-1, 16, 5, 5).permute(0, 2, 3, 1).flatten(1)
        if array.ndim > 1:
            array = array.permute(2, 3, 1, 0) if array.ndim == 4 else array.T
        found.append({"shape": list(array.shape), "values": array.flatten().tolist()})
    return found


def trained(
    package: Path, model: nn.Module, x: torch.Tensor, label: int, steps: int, lr: float
) -> dict[str, Any]:
    """Losses, milliseconds of steps, and the bytes of the script that a page loads."""
    words = {"weights": stored(model), "x": x.permute(0, 2, 3, 1).flatten().tolist(),
             "label": label, "steps": steps, "lr": lr}  # fmt: skip
    with site(package) as page:
        page.goto(SITE + "blank.html")
        page.add_script_tag(path=package / SCRIPT)
        found = dict(page.evaluate(TRAIN, words))
    return found | {"bytes": (package / SCRIPT).stat().st_size}
