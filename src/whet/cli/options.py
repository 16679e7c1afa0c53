"""What the commands can be told, declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..frontend.torch.choices import LR
from ..frontend.torch.choices import LossName as LossName
from ..frontend.torch.choices import OptimizerName as OptimizerName
from ..ops.optimizers import NAMES
from ..targets import TARGETS
from .formats import inputs_of


class DTypeName(StrEnum):
    float32 = "float32"
    int8 = "int8"


class MomentsName(StrEnum):
    bf16 = "bf16"


class FrozenName(StrEnum):
    int8 = "int8"
    q8_0 = "q8_0"
    q4_0 = "q4_0"
    q4_1 = "q4_1"
    gguf = "gguf"
    kmeans2 = "kmeans2"
    kmeans3 = "kmeans3"
    kmeans4 = "kmeans4"
    kmeans5 = "kmeans5"
    kmeans6 = "kmeans6"
    kmeans7 = "kmeans7"
    kmeans8 = "kmeans8"


class ProductsName(StrEnum):
    int8 = "int8"
    bf16 = "bf16"
    both = "int8+bf16"


class RematName(StrEnum):
    elements = "elements"
    layers = "layers"


if TYPE_CHECKING:
    TargetName = str
else:  # Typer offers the members of an enum as choices
    TargetName = StrEnum("TargetName", {name: name for name in TARGETS})


ModelArg = Annotated[
    str,
    typer.Argument(help="pkg.module:make_model, file.py:make_model or file.onnx", metavar="MODEL"),
]
WeightsOpt = Annotated[
    Path | None, typer.Option(help="a compressed file (.whtc) with the weights of MODEL")
]
InputOpt = Annotated[
    list[str],
    typer.Option(
        "--input",
        "-i",
        default_factory=list,
        callback=inputs_of,
        show_default=False,
        help="shape with batch, as 1,3,128,128; ids below 1000 as 1,16:1000; of a file such as "
        "model.onnx, what the file says if it is not given",
    ),
]
PortableOpt = Annotated[bool, typer.Option("--portable", help="kernels in plain C11 only")]
OutOpt = Annotated[Path, typer.Option("--output", "-o", help="folder for the C program")]
LossOpt = Annotated[
    LossName | None,
    typer.Option(
        help="what is minimised; without it, what a .keras file was compiled with, or cross-entropy"
    ),
]
OptimizerOpt = Annotated[
    OptimizerName | None,
    typer.Option(help="how parameters are updated; without it, that of a .keras file, or sgd"),
]
LrOpt = Annotated[
    float | None,
    typer.Option(
        help=f"learning rate; can be changed at run time; {LR:g}, or that of a .keras file"
    ),
]
WITH_MOMENTUM = " and ".join(name for name, named in NAMES.items() if named.momentum)
MomentumOpt = Annotated[float, typer.Option(help=f"of {WITH_MOMENTUM}; 0 needs no state")]
DecayOpt = Annotated[float, typer.Option(help="weight decay")]
ClipOpt = Annotated[float | None, typer.Option(help="limit of the gradients' total norm")]
TrainOpt = Annotated[
    bool, typer.Option("--train/--eval", help="batch norm and dropout as in training, or frozen")
]
NameOpt = Annotated[str, typer.Option(help="prefix of the C functions")]
StepsOpt = Annotated[int, typer.Option(min=1, help="how many steps to compare")]
UpdateOpt = Annotated[
    str | None,
    typer.Option(
        help="what trains: full, last, bias+last, norm+last, last-3, of transformers sparse-2, "
        "attention-2, ffn-2, lora or lora-2, tinytl-b (-l, -l+b, -l+b+2), a TOML file, or a "
        "published scheme such as mcunet-5fps-99kb"
    ),
]
RamOpt = Annotated[str | None, typer.Option(help="budget, as 256K or 1M")]
FlashOpt = Annotated[str | None, typer.Option(help="a microcontroller's, as 1M")]
MomentsOpt = Annotated[
    MomentsName | None, typer.Option(help="store the moments of adam and adamw in 16 bits")
]
TargetOpt = Annotated[TargetName, typer.Option(help="where the program runs")]
RematOpt = Annotated[
    RematName | None,
    typer.Option(help="compute again what saves memory: element-wise work, or layers too"),
]
FrozenOpt = Annotated[
    FrozenName | None,
    typer.Option(
        help="store weights that do not train in 8 bits (int8), in blocks of GGUF files (q8_0, "
        "q4_0, q4_1; gguf for those that they are made of), or by codebooks (kmeans4)"
    ),
]
ProductsOpt = Annotated[
    ProductsName | None,
    typer.Option(
        help="what linear layers multiply: bf16, or int8 with weights of --frozen, or int8+bf16"
    ),
]
SparseOpt = Annotated[
    bool, typer.Option("--sparse", help="of pruned weights, train and store what is not zero")
]
MappedOpt = Annotated[
    bool, typer.Option("--mapped", help="map the weights from a file instead of linking them")
]
WithoutOpt = Annotated[
    list[str] | None, typer.Option(help="leave out a pass, such as reorder; may be repeated")
]
JsonOpt = Annotated[bool, typer.Option("--json", help="print JSON")]
DTypeOpt = Annotated[DTypeName, typer.Option(help="numbers of the network")]
CalibrateOpt = Annotated[
    str | None,
    typer.Option(
        help="for int8: a .npy file of inputs like those it will see, one after the other; or "
        "`random`, which is enough to look at memory"
    ),
]
Int8Opt = Annotated[
    list[str] | None,
    typer.Option(
        "--int8",
        help="a choice of docs/int8.md, as rounding=carry8, gradients=int16, head=int8, method=mse "
        "or qas=no; may be repeated",
        metavar="NAME=VALUE",
    ),
]
