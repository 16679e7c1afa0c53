"""Traits: what an operator says about itself besides its meaning.

Passes, the quantizer and the emitter go by these facts and keep no tables of operators, so that a
new operator says what is true of it in its own class and needs an entry nowhere else. Every trait
has a default that is right for an operator that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .graph import Node, Op, Value


Sides = tuple[dict[str, float], dict[str, float]]  # attributes of within_bits and of bits_dx


@dataclass(frozen=True)
class Layer:
    """The operands are x, a weight and, if `bias`, an optional bias for each output channel.

    Channels are the last axis of x and of the result. `inputs` and `outputs` are the axes of the
    weight that run over them: 0 or -1. If they are the same axis, the layer is depthwise: each
    output channel is made from one input channel.
    """

    weight: ClassVar[int] = 1  # its place among the operands

    inputs: int
    outputs: int
    bias: bool = True
    # With groups, the input axis of a convolution's weight runs over the channels of one group;
    # that of a transposed convolution runs over those of all groups.
    inputs_of_all_groups: bool = False

    @property
    def depthwise(self) -> bool:
        return self.inputs == self.outputs

    def stored(self, axis: int, rank: int) -> int:
        """Where an axis of the weight is in the parameter, of this rank, that it is a view of.

        Parameters keep every axis that PyTorch gives them: [kh,kw,c,1] for a depthwise [kh,kw,c].
        """
        return axis if axis == 0 else rank - (2 if self.depthwise else 1)


class Traits:
    """The base of `Op`. Other forms of an operator register themselves: see `fused`."""

    # A convolution or a linear layer, whatever its numbers. Schemes count these and may train some
    # of their input channels; a batch norm behind one with a bias can be folded into it.
    layer: ClassVar[Layer | None] = None
    # Operands 1 and 2, as far as there are any, are the gain and offset of a normalisation.
    norm: ClassVar[bool] = False
    # softmax(q k') v of operands 0, 1 and 2, whatever else it takes: schemes find the projections
    # of attention by it, see scheme/structure.py.
    attends: ClassVar[bool] = False
    # Some operand is a weight, as in every layer: a frozen one may be stored in fewer bits and made
    # right before the kernel.
    reads_weights: ClassVar[bool] = False

    # It makes a whole weight of what is stored of it, and so is repeated for each reader.
    expands: ClassVar[bool] = False
    # Integers among its operands are what is stored of a weight of floats: it computes with these.
    floats_as_integers: ClassVar[bool] = False

    # The operator that does what often follows as well: an addition and a clamp behind a layer of
    # floats, `requantize` behind one of integers. Set by its class: see ops/fused.py.
    fused: ClassVar[type[Op] | None] = None
    # The layer with int8 operands and int32 sums. Set by its class: see ops/conv_i8.py.
    integer: ClassVar[type[Op] | None] = None
    # The operators of floats that this one is used for in int8 programs, if they are no layers.
    int8_of: ClassVar[tuple[type[Op], ...]] = ()
    # Its operands may be int8 as well, all with one scale; so may those of an operator that moves.
    also_int8: ClassVar[bool] = False
    # The operator that reads a frozen weight as it is stored. Set by its class: see ops/stored.py.
    stored: ClassVar[type[Op] | None] = None
    # The operator that does the same with operands rounded to bfloat16. Set by its class: see
    # ops/bf16.py.
    rounded: ClassVar[type[Op] | None] = None
    # What a linear layer, or a gradient of one, rounds its operands to: "int8" or "bf16".
    multiplies: ClassVar[str] = ""
    # The operator that runs a chain of these row by row. Set by its class: see ops/stream.py.
    streamed: ClassVar[type[Op] | None] = None

    # The result consists of elements of operand 0, f32 or int8, and stands for what they do.
    moves: ClassVar[bool] = False

    # Kernels in vec/ that the operator uses give the bits of those in ref/. An int8 program has
    # the same bits everywhere and takes vector kernels of such operators only.
    same_bits: ClassVar[bool] = False

    # straight_through(torch, node, ins, outs): the result as PyTorch computes it from tensors
    # `ins`, for autograd to differentiate; `outs` are the arrays that the program computed. The
    # check of int8 gradients uses it. An operator without it is differentiated by its own `vjp`.
    # PyTorch is an argument because operators do not import it.
    straight_through: ClassVar[Callable[..., Any] | None] = None

    @staticmethod
    def row_axis(node: Node, operand: int, axis: int) -> int | None:
        """The axis of the results that runs along with this axis of an operand.

        Each place along it depends on the operand at that place alone. None if it does not.
        """
        return None

    @staticmethod
    def limits(a: Any) -> tuple[float, float] | None:
        """low and high, if the operator is y = min(max(x, low), high)."""
        return None

    @staticmethod
    def sides(a: Any) -> Sides | None:
        """An interval and two slopes, if dx = dy * slope(kept) has one inside and one outside it.

        One bit for each element is then enough to keep.
        """
        return None

    @staticmethod
    def largest_sum(node: Node) -> int | None:
        """The largest sum of this int8 product for a gradient of ones.

        The gradient is operand 0 and may be of integers too: this times the largest of them must
        not overflow.
        """
        return None

    @staticmethod
    def packable(node: Node) -> Iterator[tuple[Value, tuple[int, int]]]:
        """Weights that the kernel can read as [kh,kw,c,o], each with the place of its struct.

        That is an argument of the kernel call and, if the argument is an array, an index in it.
        """
        return iter(())
