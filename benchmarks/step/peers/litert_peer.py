"""LiteRT (once TensorFlow Lite): a step of the last layer, converted from TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .case import RATE, Case, forward
from .tf_peer import DEPTHWISE, OPS


class Net(tf.Module):  # type: ignore[misc]
    """The gradient of the head is written out: the interpreter has no gradient of the softmax."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        *self.front, head = case.layers
        self.tensors = case.channels_last(DEPTHWISE)
        self.weight = tf.Variable(self.tensors[head.tensors["weight"]])
        self.bias = tf.Variable(self.tensors[head.tensors["bias"]])

    def step(self, x: Any, y: Any) -> dict[str, Any]:
        features, _ = forward(self.front, x, self.tensors, OPS)
        logits = tf.matmul(features, self.weight, transpose_b=True) + self.bias
        wanted = tf.one_hot(y, self.bias.shape[0])
        loss = -tf.reduce_mean(tf.reduce_sum(wanted * tf.nn.log_softmax(logits), 1))
        slope = (tf.nn.softmax(logits) - wanted) / x.shape[0]
        self.weight.assign_sub(RATE * tf.matmul(slope, features, transpose_a=True))
        self.bias.assign_sub(RATE * tf.reduce_sum(slope, 0))
        return {"loss": loss}


def prepare(case: Case, threads: int, variant: str) -> Callable[[], float]:
    net = Net(case)
    x = np.ascontiguousarray(case.x.transpose(0, 2, 3, 1))
    y = case.y.astype(np.int32)
    step = tf.function(net.step).get_concrete_function(tf.constant(x), tf.constant(y))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([step], net)
    converter.experimental_enable_resource_variables = True
    interpreter = tf.lite.Interpreter(model_content=converter.convert(), num_threads=threads)
    run = interpreter.get_signature_runner()
    return lambda: float(run(x=x, y=y)["loss"])
