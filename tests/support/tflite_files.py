"""Write TFLite files of int8, by the schema that comes with the interpreter, for tests."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as s

Array = np.ndarray[Any, Any]
SAME, VALID = 0, 1
RELU, RELU6 = 1, 3
STEP = 0.1  # of the logits of `mobile_net`
# Of operators, where int8 is not the second.
VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "RESHAPE": 1, "QUANTIZE": 1}


class Writer:
    """A graph that grows by one operation at a time; every method gives the number of a tensor."""

    def __init__(self, *shape: int, scale: float = 0.05, zero: int = 3, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.model, self.graph = s.ModelT(), s.SubGraphT()
        self.model.version, self.model.description = 3, b"whet"
        self.model.operatorCodes, self.model.buffers = [], [s.BufferT()]
        self.graph.tensors, self.graph.operators = [], []
        self.input = self.tensor(shape, scale, zero, name="input")
        self.graph.inputs = [self.input]

    def tensor(
        self, shape: tuple[int, ...], scale: Any = None, zero: Any = 0, *,
        kind: str = "INT8", data: Array | None = None, axis: int = 0, name: str = "",
    ) -> int:  # fmt: skip
        made = s.TensorT()
        made.shape, made.type = list(shape), getattr(s.TensorType, kind)
        made.name = (name or f"t{len(self.graph.tensors)}").encode()
        made.buffer = 0
        if data is not None:
            made.buffer = len(self.model.buffers)
            buffer = s.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            quant = s.QuantizationParametersT()
            quant.scale, quant.quantizedDimension = scales, axis
            quant.zeroPoint = np.full(scales.size, zero, np.int64)
            made.quantization = quant
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def op(self, code: str, inputs: list[int], output: int, options: Any = None) -> int:
        number = getattr(s.BuiltinOperator, code)
        operator, opcode = s.OperatorT(), s.OperatorCodeT()
        opcode.builtinCode, opcode.deprecatedBuiltinCode = number, min(number, 127)
        opcode.version = VERSIONS.get(code, 2)
        operator.opcodeIndex = len(self.model.operatorCodes)
        self.model.operatorCodes.append(opcode)
        operator.inputs, operator.outputs = inputs, [output]
        if options is not None:
            kind = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(s.BuiltinOptions, kind)
            operator.builtinOptions = options
        self.graph.operators.append(operator)
        return output

    def shape(self, tensor: int) -> tuple[int, ...]:
        return tuple(self.graph.tensors[tensor].shape)

    def scale(self, tensor: int) -> float:
        return float(self.graph.tensors[tensor].quantization.scale[0])

    def weights(self, x: int, shape: tuple[int, ...], axis: int) -> list[int]:
        size = np.prod(shape) / shape[axis]  # so that sums keep about the range of the input
        scales = (self.rng.uniform(0.01, 0.03, shape[axis]) / np.sqrt(size)).astype(np.float32)
        numbers = self.rng.integers(-127, 128, shape).astype(np.int8)
        bias = self.rng.integers(-400, 400, shape[axis]).astype(np.int32)
        return [
            self.tensor(shape, scales, data=numbers, axis=axis),
            self.tensor((shape[axis],), scales * self.scale(x), kind="INT32", data=bias),
        ]

    def conv(
        self, x: int, channels: int, kernel: int, stride: int = 1, act: int = 0,
        padding: int = SAME, depthwise: bool = False, scale: float = 0.06, zero: int = -5,
    ) -> int:  # fmt: skip
        n, h, w, c = self.shape(x)
        less = 0 if padding == SAME else kernel - 1
        out = (n, -(-(h - less) // stride), -(-(w - less) // stride), channels)
        options = s.DepthwiseConv2DOptionsT() if depthwise else s.Conv2DOptionsT()
        options.strideH = options.strideW = stride
        options.dilationHFactor = options.dilationWFactor = 1
        options.padding, options.fusedActivationFunction = padding, act
        if depthwise:
            options.depthMultiplier = channels // c
            stored = self.weights(x, (1, kernel, kernel, channels), 3)
        else:
            stored = self.weights(x, (channels, kernel, kernel, c), 0)
        code = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        return self.op(code, [x, *stored], self.tensor(out, scale, zero), options)

    def dense(self, x: int, outputs: int, scale: float = 0.1, zero: int = 2) -> int:
        options = s.FullyConnectedOptionsT()
        shape = self.shape(x)
        stored = self.weights(x, (outputs, int(np.prod(shape[1:]))), 0)
        return self.op(
            "FULLY_CONNECTED", [x, *stored], self.tensor((shape[0], outputs), scale, zero), options
        )

    def add(self, x: int, y: int, act: int = 0, scale: float = 0.08, zero: int = -7) -> int:
        options = s.AddOptionsT()
        options.fusedActivationFunction = act
        return self.op("ADD", [x, y], self.tensor(self.shape(x), scale, zero), options)

    def pool(
        self, x: int, kernel: int, largest: bool = False, stride: int = 0, padding: int = VALID
    ) -> int:
        n, h, w, c = self.shape(x)
        options = s.Pool2DOptionsT()
        options.filterHeight = options.filterWidth = kernel
        options.strideH = options.strideW = stride = stride or kernel
        options.padding = padding
        less = 0 if padding == SAME else kernel - 1
        made = self.same(x, (n, -(-(h - less) // stride), -(-(w - less) // stride), c))
        return self.op("MAX_POOL_2D" if largest else "AVERAGE_POOL_2D", [x], made, options)

    def add_known(self, x: int, scale: float = 0.08, zero: int = -7) -> int:
        numbers = self.rng.integers(-128, 128, self.shape(x)[-1:]).astype(np.int8)
        known = self.tensor(numbers.shape, 0.01, 9, data=numbers)
        return self.op("ADD", [x, known], self.tensor(self.shape(x), scale, zero), s.AddOptionsT())

    def alone(self, code: str, x: int, scale: float, zero: int) -> int:
        """An operator of one operand, without options, whose result has a scale of its own."""
        return self.op(code, [x], self.tensor(self.shape(x), scale, zero))

    def same(self, x: int, shape: tuple[int, ...]) -> int:
        """A tensor of the same scale."""
        zero = int(self.graph.tensors[x].quantization.zeroPoint[0])
        return self.tensor(shape, self.scale(x), zero)

    def known(self, *numbers: Any) -> int:
        array = np.asarray(numbers, np.int32)
        return self.tensor(array.shape, None, kind="INT32", data=array)

    def mean(self, x: int, axes: tuple[int, ...] = (1, 2)) -> int:
        options = s.ReducerOptionsT()
        options.keepDims = False
        shape = tuple(n for i, n in enumerate(self.shape(x)) if i not in axes)
        return self.op("MEAN", [x, self.known(*axes)], self.same(x, shape), options)

    def pad(self, x: int, around: int) -> int:
        n, h, w, c = self.shape(x)
        widths = self.known((0, 0), (around, around), (around, around), (0, 0))
        return self.op(
            "PAD",
            [x, widths],
            self.same(x, (n, h + 2 * around, w + 2 * around, c)),
            s.PadOptionsT(),
        )

    def reshape(self, x: int, *shape: int) -> int:
        options = s.ReshapeOptionsT()
        options.newShape = list(shape)
        return self.op("RESHAPE", [x, self.known(*shape)], self.same(x, shape), options)

    def softmax(self, x: int) -> int:
        options = s.SoftmaxOptionsT()
        options.beta = 1.0
        return self.op("SOFTMAX", [x], self.tensor(self.shape(x), 1 / 256, -128), options)

    def dequantize(self, x: int) -> int:
        made = self.tensor(self.shape(x), None, kind="FLOAT32")
        return self.op("DEQUANTIZE", [x], made, s.DequantizeOptionsT())

    def finish(self, output: int) -> bytes:
        self.graph.outputs = [output]
        self.model.subgraphs = [self.graph]
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def mobile_net(seed: int = 0, softmax: bool = False) -> bytes:
    """Every operator that whet reads but `QUANTIZE`, in the way of a MobileNet."""
    w = Writer(1, 11, 11, 3, seed=seed)
    x = w.conv(w.input, 8, 3, stride=2, act=RELU6, scale=6 / 255, zero=-128)
    y = w.conv(x, 8, 3, act=RELU6, depthwise=True, scale=0.02, zero=-128)
    y = w.conv(y, 8, 1, scale=0.02)
    x = w.pad(w.add(x, y), 1)
    x = w.pool(w.conv(x, 12, 3, padding=VALID, scale=0.03), 2, largest=True)
    x = w.mean(w.conv(w.pool(x, 2), 16, 1, scale=0.02))
    logits = w.dense(w.reshape(x, 1, 16), 5, scale=STEP)
    return w.finish(w.dequantize(w.softmax(logits)) if softmax else logits)


def pooled_net() -> bytes:
    """Padded pools, sums with constants, activations on their own, and a narrower scale."""
    w = Writer(1, 11, 11, 3)
    x = w.alone("RELU", w.conv(w.input, 6, 3, scale=0.02), 0.01, -128)
    x = w.pool(w.pool(x, 2, largest=True, stride=1, padding=SAME), 3, True, 2, SAME)
    x = w.pool(w.pool(x, 2, stride=1, padding=SAME), 3, stride=2, padding=SAME)
    x = w.alone("QUANTIZE", w.conv(x, 8, 1, scale=0.01, zero=0), 0.003, 20)
    x = w.alone("RELU6", w.conv(w.add_known(x, 0.02), 8, 1, scale=0.02), 0.02, -128)
    return w.finish(w.dense(w.mean(x), 5, scale=STEP))


def repeated(count: int) -> bytes:
    """A graph whose tensors are all one table, with as many scales."""
    b = flatbuffers.Builder(1024)
    scales = b.CreateNumpyVector(np.ones(count, np.float32))
    s.QuantizationParametersStart(b)
    s.QuantizationParametersAddScale(b, scales)
    quantization = s.QuantizationParametersEnd(b)
    s.TensorStart(b)
    s.TensorAddQuantization(b, quantization)
    tensor = s.TensorEnd(b)
    tensors = offsets(b, [tensor] * count)
    s.SubGraphStart(b)
    s.SubGraphAddTensors(b, tensors)
    graphs = offsets(b, [s.SubGraphEnd(b)])
    s.BufferStart(b)
    buffers = offsets(b, [s.BufferEnd(b)])
    s.ModelStart(b)
    s.ModelAddSubgraphs(b, graphs)
    s.ModelAddBuffers(b, buffers)
    b.Finish(s.ModelEnd(b), b"TFL3")
    return bytes(b.Output())


def offsets(b: Any, tables: list[int]) -> int:
    b.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        b.PrependUOffsetTRelative(table)
    made: int = b.EndVector()
    return made


def run(data: bytes, x: Array) -> Array:
    """What the reference kernels of TFLite compute from int8 inputs."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    found: Array = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return found
