"""Instructions per multiplication of the int8 kernels on a Cortex-M7, beside CMSIS-NN's.

    python -m benchmarks.mcu_kernels              every layer; writes README.md
    python -m benchmarks.mcu_kernels dw           those with `dw` in their name; prints only

Each layer runs once in QEMU, with the kernels of dsp/ and with those of ref/, built by
arm-none-eabi-gcc -O2; a plugin counts the instructions of the call. Products with padding count
as such, sums are narrowed to int8 with a scale for each channel, and no bits are wanted. Both
programs must give the same bytes. The column of CMSIS-NN (commit 99f736a6, gcc -O2, same layers,
same way of counting) was measured once. An instruction is not a cycle.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("README.md")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import cortex  # noqa: E402
from whet.targets.bare_metal.emulator import plugin, read_seen  # noqa: E402
from whet.targets.bare_metal.firmware import read_elf  # noqa: E402
from whet.targets.cortex_m.thumb import calls  # noqa: E402

KERNELS = ROOT / "src" / "whet" / "kernels"


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str  # conv or depthwise, then the gradient if it is one
    size: int  # of a square image
    c: int
    o: int
    kernel: int = 1
    stride: int = 1
    bar: float | None = None

    @property
    def out(self) -> int:
        return (self.size + self.stride - 1) // self.stride

    @property
    def macs(self) -> int:
        of_output = self.c if self.kind.startswith("conv") else 1
        return self.out**2 * self.o * self.kernel**2 * of_output

    def window(self) -> str:
        """The fields of whet_conv2d_t; the padding is what `same` means."""
        pad = max((self.out - 1) * self.stride + self.kernel - self.size, 0) // 2
        image = (1, self.size, self.size, self.c, self.out, self.out, self.o)
        groups = 1 if self.kind.startswith("conv") else self.c
        kernel = (self.kernel, self.kernel, groups, self.stride, self.stride, pad, pad, 1, 1, 0)
        return ", ".join(map(str, image + kernel))


LAYERS = (
    Layer("1x1 48->16, 20x20", "conv", 20, 48, 16, bar=2.24),
    Layer("1x1 16->48, 20x20", "conv", 20, 16, 48, bar=3.92),
    Layer("1x1 96->24, 10x10", "conv", 10, 96, 24, bar=1.84),
    Layer("dw 3x3 48, 20x20", "depthwise", 20, 48, 48, 3, bar=8.05),
    Layer("dw 3x3 s2 48, 20x20", "depthwise", 20, 48, 48, 3, 2, bar=8.06),
    Layer("dw 5x5 48, 20x20", "depthwise", 20, 48, 48, 5, bar=9.38),
    Layer("3x3 s2 3->16, 80x80", "conv", 80, 3, 16, 3, 2, bar=4.88),
    Layer("3x3 16->16, 20x20", "conv", 20, 16, 16, 3, bar=2.35),
    Layer("dx of 1x1 48->16, 20x20", "conv_dx", 20, 48, 16),
    Layer("dw of 1x1 48->16, 20x20", "conv_dw", 20, 48, 16),
    Layer("dx of 3x3 16->16, 20x20", "conv_dx", 20, 16, 16, 3),
    Layer("dw of 3x3 16->16, 20x20", "conv_dw", 20, 16, 16, 3),
    Layer("dx of dw 3x3 48, 20x20", "depthwise_dx", 20, 48, 48, 3),
    Layer("dw of dw 3x3 48, 20x20", "depthwise_dw", 20, 48, 48, 3),
    Layer("dx of dw 5x5 s2 48, 20x20", "depthwise_dx", 20, 48, 48, 5, 2),
    Layer("dw of dw 5x5 s2 48, 20x20", "depthwise_dw", 20, 48, 48, 5, 2),
)

MAIN_C = r"""
#include <stdio.h>
#include "whet_kernels_i8.h"
enum { MOST = 26000 };
static int8_t x[MOST], w[MOST], y[MOST];
static int32_t b[64];
static float scale[64], dy[MOST], dx[MOST];
static uint32_t seed = 1;
static int32_t next(void) {
    seed = seed * 1664525u + 1013904223u;
    return (int8_t)(seed >> 24);
}
int main(void) {
    static const whet_narrow_t to = {-3, 5, -128, 127, 0};
    for (int i = 0; i < MOST; i++) x[i] = (int8_t)next(), w[i] = (int8_t)next();
    for (int i = 0; i < MOST; i++) dy[i] = (float)next() * (1.0f / 128.0f);
    for (int i = 0; i < 64; i++) b[i] = next() * 64, scale[i] = (float)(130 + next()) * 1e-5f;
%s
    return 0;
}
"""
CALLS = {
    "conv": ("whet_conv2d_i8_fused(y, NULL, x, w, b, scale, NULL, NULL, &to, &d)", "y"),
    "depthwise": ("whet_depthwise_i8_fused(y, NULL, x, w, b, scale, &to, &d)", "y"),
    "conv_dx": ("whet_conv2d_i8_dx(dx, dy, w, &d)", "dx"),
    "conv_dw": ("whet_conv2d_i8_dw(dx, dy, x, -3, &d)", "dx"),
    "depthwise_dx": ("whet_depthwise_i8_dx(dx, dy, w, &d)", "dx"),
    "depthwise_dw": ("whet_depthwise_i8_dw(dx, dy, x, -3, &d)", "dx"),
}


def count(elf: Path) -> tuple[list[int], bytes]:
    """Instructions of every kernel call in `main`, in order; and what the program wrote."""
    built, report = read_elf(elf), elf.parent / "seen"
    at, size = built.symbols["main"]
    everything = "ram=0:0xffffffff,flash=0:0,stack=0:0"
    words = f"{plugin(elf.parent)},{everything},function={at}:{at + size},start=0,out={report}"
    done = cortex.run("m7", elf, options=("-plugin", words))
    assert done.returncode == 0, done.stderr
    names = {address: name for name, (address, _) in built.symbols.items()}
    spent = read_seen(report.read_text()).spent
    found = calls(built.code(at, size), at)
    return [spent[a] for a, to in found if names.get(to, "").startswith("whet_")], done.stdout


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def build(folder: Path, isa: str, layers: tuple[Layer, ...]) -> Path:
    """A program that makes every call and writes its results."""
    text = []
    for layer in layers:
        call, result = CALLS[layer.kind]
        text += [f"    {{ static const whet_conv2d_t d = {{{layer.window()}}};",
                 f"      {call};",
                 f"      fwrite({result}, 1, sizeof {result}, stdout); }}"]  # fmt: skip
    main = folder / "main.c"
    main.write_text(MAIN_C % "\n".join(text))
    names = ("conv2d_i8", "depthwise_i8", "conv2d_i8_dx", "conv2d_i8_dw", "depthwise_i8_dx",
             "depthwise_i8_dw")  # fmt: skip
    folders = [KERNELS / part for part in ("dsp", "ref")[isa == "ref" :]]
    files = [str(next(f / f"{n}.c" for f in folders if (f / f"{n}.c").exists())) for n in names]
    include = [f"-I{KERNELS}", *(f"-I{f}" for f in folders)]
    elf = folder / f"{isa}.elf"
    run(cortex.COMPILER, *cortex.flags("m7"), *include, str(main), *files, "-o", str(elf))
    return elf


def table(layers: tuple[Layer, ...]) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fast, bytes_fast = count(build(folder, "dsp", layers))
        plain, bytes_plain = count(build(folder, "ref", layers))
    assert bytes_fast == bytes_plain, "dsp/ and ref/ differ"
    lines = ["| layer | products | dsp/ | ref/ | CMSIS-NN | dsp/ : CMSIS-NN |",
             "|---|--:|--:|--:|--:|--:|"]  # fmt: skip
    for layer, f, p in zip(layers, fast, plain, strict=True):
        a, b = f / layer.macs, p / layer.macs
        bar = f"{layer.bar:.2f} | {a / layer.bar:.2f}" if layer.bar else "| "
        lines.append(f"| {layer.name} | {layer.macs:,} | **{a:.2f}** | {b:.2f} | {bar} |")
    return lines


def main() -> None:
    wanted = tuple(layer for layer in LAYERS if not sys.argv[1:] or sys.argv[1] in layer.name)
    lines = table(wanted)
    print("\n".join(lines))
    if len(wanted) == len(LAYERS):
        said = (__doc__ or "").strip().splitlines()
        text = ["# int8 kernels on a Cortex-M", "", *said[5:], ""]
        text += ["Made by `python -m benchmarks.mcu_kernels`. Gradients are in float.", ""]
        PAGE.write_text("\n".join([*text, *lines, ""]))


if __name__ == "__main__":
    main()
