"""PyTorch's own sample inputs (its OpInfo database) for every operator whet claims.

A sample is left out only for one of the reasons listed here, and how many were is counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree

from torch_oracle import EXACT, Case, real
from torch_oracle import flat as flat_tensors

CLAIMED = """
H T __getitem__ __radd__ __rand__ __rdiv__ __rmatmul__ __rmul__ __ror__ __rsub__ __rxor__
_upsample_bilinear2d_aa abs add addcdiv addcmul addmm addmm.decomposed
addmv all amax amin any argmax argmin atleast_1d atleast_2d atleast_3d baddbmm
bitwise_and bitwise_not bitwise_or bitwise_xor bmm bool broadcast_tensors broadcast_to cat chunk
clone constant_pad_nd contiguous cos cumsum div.no_rounding_mode dot double dsplit einsum eq erf
exp expand expand_as flatten flip float floor full_like gather ge gt hsplit index_select int
le lerp linalg.vector_norm log log_softmax log_softmax.with_dtype logical_and logical_not
logical_or logical_xor logsumexp long lt mH mT masked.amax masked.amin masked.argmax masked.argmin
masked.cumsum masked.log_softmax masked.logsumexp masked.mean masked.norm masked.softmax
masked.softmin masked.sum masked_fill matmul max.binary max.reduction_no_dim
max.reduction_with_dim maximum mean min.binary min.reduction_no_dim min.reduction_with_dim minimum
mm movedim mul mv narrow ne neg new_full new_ones new_zeros
nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d nn.functional.avg_pool1d
nn.functional.avg_pool2d nn.functional.batch_norm nn.functional.binary_cross_entropy
nn.functional.binary_cross_entropy_with_logits nn.functional.celu nn.functional.channel_shuffle
nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose1d
nn.functional.conv_transpose2d nn.functional.cross_entropy nn.functional.dropout
nn.functional.dropout2d nn.functional.elu nn.functional.embedding
nn.functional.feature_alpha_dropout.without_train nn.functional.gelu nn.functional.glu
nn.functional.group_norm nn.functional.hardshrink nn.functional.hardsigmoid
nn.functional.hardswish nn.functional.hardtanh nn.functional.huber_loss
nn.functional.instance_norm nn.functional.interpolate.area nn.functional.interpolate.bicubic
nn.functional.interpolate.bilinear nn.functional.interpolate.linear
nn.functional.interpolate.nearest nn.functional.kl_div nn.functional.l1_loss
nn.functional.layer_norm nn.functional.leaky_relu nn.functional.linear
nn.functional.linear_cross_entropy nn.functional.local_response_norm nn.functional.logsigmoid
nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.mish nn.functional.mse_loss
nn.functional.multi_margin_loss
nn.functional.multilabel_soft_margin_loss nn.functional.nll_loss nn.functional.normalize
nn.functional.one_hot nn.functional.pad.circular nn.functional.pad.constant
nn.functional.pad.reflect nn.functional.pad.replicate nn.functional.pad.replicate_negative
nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.prelu nn.functional.relu
nn.functional.relu6 nn.functional.rms_norm nn.functional.scaled_dot_product_attention
nn.functional.selu nn.functional.silu nn.functional.smooth_l1_loss nn.functional.soft_margin_loss
nn.functional.softmin nn.functional.softmin.with_dtype nn.functional.softplus
nn.functional.softsign nn.functional.tanhshrink nn.functional.unfold
nn.functional.upsample_bilinear nn.functional.upsample_nearest norm norm.fro norm.inf ones_like
outer permute positive ravel reciprocal repeat reshape reshape_as roll rsqrt rsub select
select_scatter sigmoid sin slice slice_scatter softmax softmax.with_dtype split split.list_args
split_with_sizes sqrt square squeeze squeeze.multiple stack std std.unbiased std_mean
std_mean.unbiased sub sum t tanh to transpose true_divide unbind unflatten unfold unsqueeze var
var.unbiased var_mean var_mean.unbiased view view_as view_copy vsplit where zeros_like
""".split()


# What whet refuses among them, and why that is no defect: what the refusal says -> the reason.
REFUSALS = {
    r"whet has no operator for it": "an operator that is not claimed, reached by this one's name",
    r"depends? on( the)? values": "sizes or places that are values",
    r"a vector norm of order": "a norm other than the sum, the Euclidean and the largest",
    r"updates running statistics": "an instance norm with running statistics in training",
    r"strided slice": "writing to a strided slice",
}

# The places of the maxima are PyTorch's second result and nothing whet computes.
FIRST_RESULT_ONLY = re.compile(r"nn\.functional\.(adaptive_)?max_pool[12]d")

# PyTorch's double precision contains a float here: 1.0f / 6.0f, 1 / alpha.toFloat().
INEXACT = {"nn.functional.hardsigmoid": 1e-7, "nn.functional.celu": 1e-7}


def refusal(text: str) -> str | None:
    return next((reason for said, reason in REFUSALS.items() if re.search(said, text)), None)


def title(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


OPS: dict[str, OpInfo] = {title(op): op for op in op_db}


@dataclass
class Found:
    cases: list[Case] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def cases(name: str) -> Found:
    op, found = OPS[name], Found()
    torch.manual_seed(0)
    dtype = next(t for t in (torch.float32, torch.bool, torch.int64) if op.supports_dtype(t, "cpu"))
    grad = op.supports_autograd and dtype.is_floating_point
    for k, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        settled = settle(as_case(f"{name}-{k}", op, sample, k))
        if isinstance(settled, Case):
            found.cases.append(settled)
        else:
            found.skip(settled)
    return found


def as_case(name: str, op: OpInfo, sample: SampleInput, k: int) -> Case:
    """Operands take turns at being inputs, parameters and constants."""
    flat, spec = _pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    flat = [torch.float64 if x is torch.float32 else x for x in flat]
    places = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]

    def f(*tensors: torch.Tensor) -> Any:
        values = list(flat)
        for i, tensor in zip(places, tensors, strict=True):
            values[i] = tensor
        first, args, kwargs = _pytree.tree_unflatten(values, spec)
        results = op.op(first, *args, **kwargs)
        return flat_tensors(results)[0] if FIRST_RESULT_ONLY.match(op.name) else results

    tensors = tuple(flat[i] for i in places)
    kinds = ""
    for tensor in tensors:
        if tensor.requires_grad:
            kinds += "p" if k % 2 or "i" in kinds else "i"
        else:
            kinds += "d" if k % 2 or not kinds else "c"
    return Case(name, f, tensors, kinds, exact=INEXACT.get(op.name, EXACT))


def settle(case: Case) -> Case | str:
    """The case with the tensors it changes marked as states, or why it is left out."""
    if any(t.is_complex() for t in case.tensors):
        return "complex numbers"
    results = [evaluated(case, seed) for seed in (1, 2)]
    (outputs, given), (again, _) = results
    if any(t.numel() == 0 for t in (*case.tensors, *outputs)):
        return "a tensor without elements"
    if not all(map(same, outputs, again)):
        return "random numbers"
    changed = [not same(real(t, g.dtype), g) for t, g in zip(case.tensors, given, strict=True)]
    kinds = "".join("s" if c else k for c, k in zip(changed, case.kinds, strict=True))
    return replace(case, kinds=kinds)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def evaluated(case: Case, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Outputs and, as they are afterwards, operands. Samples that set a seed get this one."""
    set_seed = torch.manual_seed
    given = [real(t, torch.float64) for t in case.tensors]
    with torch.random.fork_rng(), patch.object(torch, "manual_seed", lambda _: set_seed(seed)):
        torch.manual_seed(seed)
        return flat_tensors(case.f(*given)), given
