"""Graph -> Graph functions that preserve the meaning and make the program smaller and faster."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import FrontendError
from ..ir import Codebook, Graph, Live
from .add_factors import add_factors, find_factors
from .add_generation import add_generation
from .add_parts import add_parts
from .choose_kernels import choose_kernels
from .drop_masks import drop_masks
from .drop_moves import drop_moves
from .fold_batch_norm import fold_batch_norm
from .fold_constants import fold_constants
from .frozen_forms import Form
from .fuse_attention import fuse_attention
from .fuse_gates import fuse_gates
from .fuse_gelu import fuse_gelu
from .fuse_head import fuse_head, fuse_trained_head
from .fuse_layers import fuse_layers
from .fuse_narrow import fuse_narrow
from .fuse_norms import fuse_norms
from .fuse_rms_norms import fuse_rms_norms
from .fuse_rotary import fuse_rotary
from .fuse_updates import fuse_updates
from .keep_bits import keep_bits
from .manager import Context, Entries, Observer, Pass, Recompute, Stage, run_passes
from .multiply_bytes import multiply_bytes
from .narrow_frozen import narrow_frozen
from .narrow_gradients import narrow_gradients
from .one_sample import one_sample
from .rematerialize import rematerialize
from .renew_norms import renew_norms
from .reorder import reorder
from .round_products import round_products
from .schedule import schedule
from .share_common import share_common
from .slice_first import slice_first
from .split_channels import find_slices, split_channels
from .split_live import find_live, split_live, spread_late, stored_whole
from .split_prefix import split_prefix
from .split_shared import find_shared, split_shared
from .stream_rows import stream_rows
from .trim_attention import trim_attention

MODEL, STEP = Stage.MODEL, Stage.STEP


def sparse(context: Context) -> bool:
    """Whether live elements of some parameter train as a leaf of their own."""
    return any(isinstance(part, Live) and not part.whole for part in context.parts.values())


def shared(context: Context) -> bool:
    """Whether values train that the elements of a weight share."""
    return any(isinstance(part, Codebook) for part in context.parts.values())


# Every pass, in order. Rematerialization needs the updates in their final positions and layers not
# yet fused, so it is between `reorder` and the fusing passes.
PASSES = (
    Pass(fold_batch_norm, MODEL, told=("changing",)),
    Pass(fuse_attention, MODEL),
    Pass(fold_constants, MODEL, told=("changing",)),
    Pass(trim_attention, MODEL),
    Pass(drop_moves, MODEL),
    Pass(fuse_norms, MODEL, told=("changing",)),
    Pass(fuse_rms_norms, MODEL),
    Pass(fuse_rotary, MODEL, told=("changing",)),
    Pass(fuse_gelu, MODEL),
    Pass(fuse_gates, MODEL),
    Pass(slice_first, MODEL),
    Pass(split_channels, MODEL, told=("parts",), switch=False, when=lambda c: bool(c.parts)),
    Pass(split_live, MODEL, told=("parts",), switch=False, when=sparse),
    Pass(split_shared, MODEL, told=("parts",), switch=False, when=shared),
    Pass(one_sample, STEP, program=True, when=lambda c: c.single),
    Pass(add_generation, STEP, switch=False, program=True, when=lambda c: c.generate),
    Pass(
        narrow_gradients, STEP, told=("gradients",), switch=False,
        when=lambda c: c.gradients != "float32",
    ),
    Pass(share_common, STEP),
    Pass(spread_late, STEP, switch=False, when=lambda c: sparse(c) or shared(c)),
    Pass(fuse_head, STEP, told=("narrow",)),
    Pass(fuse_trained_head, STEP, alternative=True),
    Pass(drop_masks, STEP),
    Pass(add_parts, STEP),
    Pass(keep_bits, STEP),
    Pass(renew_norms, STEP),
    Pass(reorder, STEP),
    Pass(
        rematerialize, STEP, told=("limit", "layers", "inside"), switch=False, alternative=True,
        when=lambda c: c.recompute is not None,
    ),
    Pass(fuse_narrow, STEP),
    Pass(fuse_layers, STEP),
    Pass(round_products, STEP, switch=False, when=lambda c: "bf16" in c.products),
    Pass(fuse_updates, STEP),
    Pass(stream_rows, STEP, told=("inside",)),
    Pass(schedule, STEP),
    Pass(
        narrow_frozen, STEP, told=("narrow", "inplace", "inside"), switch=False, program=True,
        when=lambda c: c.narrow is not None,
    ),
    Pass(multiply_bytes, STEP, switch=False, when=lambda c: "int8" in c.products),
    Pass(
        choose_kernels, STEP, told=("machine", "inplace", "grow"), program=True,
        when=lambda c: c.vectors,
    ),
    Pass(split_prefix, STEP, switch=False, program=True, when=lambda c: c.cached),
)  # fmt: skip

SWITCHES = (*(p.name for p in PASSES if p.switch), "inplace")


def check_switches(without: Collection[str]) -> frozenset[str]:
    """The passes to skip; without `reorder`, no other pass may move updates either."""
    without = [without] if isinstance(without, str) else without
    for name in without:
        if name not in SWITCHES:
            raise FrontendError(
                f"{name!r} is not a pass that can be skipped", try_=", ".join(SWITCHES)
            )
    moving = {"fuse_updates", "schedule"} if "reorder" in without else set()
    return frozenset(without) | moving


def run_stage(stage: Stage, entries: Entries, context: Context) -> dict[str, Graph]:
    """The graphs after all passes of a stage."""
    return run_passes((p for p in PASSES if p.stage is stage), entries, context)


__all__ = [
    "PASSES",
    "SWITCHES",
    "Context",
    "Entries",
    "Form",
    "Observer",
    "Pass",
    "Recompute",
    "Stage",
    "add_factors",
    "check_switches",
    "find_factors",
    "find_live",
    "find_shared",
    "find_slices",
    "run_passes",
    "run_stage",
    "stored_whole",
]  # fmt: skip
