"""TensorFlow: a step in one tf.function, channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .case import RATE, Case, forward

DEPTHWISE = (2, 3, 0, 1)  # height, width, channels, 1


def edges(x: Any, padding: int, value: float = 0.0) -> Any:
    space = [padding, padding]
    return tf.pad(x, [[0, 0], space, space, [0, 0]], constant_values=value) if padding else x


def conv(x: Any, weight: Any, bias: Any = None, *, stride: int, padding: int, groups: int) -> Any:
    """With stride 1, PyTorch's padding is what TensorFlow calls SAME; else it is done before."""
    how, steps = "SAME", [1, stride, stride, 1]
    if stride > 1:
        how, x = "VALID", edges(x, padding)
    layer = tf.nn.depthwise_conv2d if groups > 1 else tf.nn.conv2d
    y = layer(x, weight, steps, how)
    return y if bias is None else tf.nn.bias_add(y, bias)


def norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *, eps: float, momentum: float
) -> Any:
    return tf.compat.v1.nn.fused_batch_norm(
        x, weight, bias, mean, variance, eps, is_training=True, exponential_avg_factor=momentum
    )


def max_pool(x: Any, *, kernel: int, stride: int, padding: int) -> Any:
    return tf.nn.max_pool2d(edges(x, padding, -float("inf")), kernel, stride, "VALID")


OPS: dict[str, Callable[..., Any]] = {
    "conv": conv,
    "norm": norm,
    "max_pool": max_pool,
    "relu": tf.nn.relu,
    "relu6": tf.nn.relu6,
    "add": tf.add,
    "pool": lambda x: tf.reduce_mean(x, [1, 2]),
    "flatten": lambda x: tf.reshape(x, [x.shape[0], -1]),
    "linear": lambda x, weight, bias: tf.matmul(x, weight, transpose_b=True) + bias,
}


def prepare(case: Case, threads: int, variant: str) -> Callable[[], float]:
    """What is frozen is a constant, so the front takes no part in the gradient."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    changing = set(case.trained) | {n for n in case.tensors if ".running_" in n}
    tensors = {
        name: tf.Variable(a, trainable=name in case.trained) if name in changing else tf.constant(a)
        for name, a in case.channels_last(DEPTHWISE).items()
    }
    trained = [tensors[name] for name in case.trained]
    x, y = tf.constant(case.x.transpose(0, 2, 3, 1)), tf.constant(case.y)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            logits, changed = forward(case.layers, x, tensors, OPS)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        for variable, slope in zip(trained, tape.gradient(loss, trained), strict=True):
            variable.assign_sub(RATE * slope)
        for name, value in changed.items():
            tensors[name].assign(value)
        return loss

    graph = tf.function(step)
    return lambda: float(graph(x, y))
