"""Where a program runs, as data: which kernels it takes, how it is compiled, what memory it has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import TargetError, option


@dataclass(frozen=True)
class Chip:
    """A microcontroller: where its memory lies, what it is called by compilers and the emulator."""

    cpu: str  # gcc's name
    fpu: str
    zig_cpu: str  # with the floating-point unit, without which it would be emulated
    machine: str  # QEMU's
    ram_at: int = 0x20000000
    flash_at: int = 0
    ram: int = 256 << 10
    flash: int = 1 << 20
    stack: int = 8 << 10  # bytes set aside, for any kernel; a run measures what is used

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"-mcpu={self.cpu}", "-mthumb", "-mfloat-abi=hard", f"-mfpu={self.fpu}")


@dataclass(frozen=True)
class Target:
    """`isa` names folders of kernels: the first that has a file of the wanted name is taken."""

    name: str
    isa: tuple[str, ...]
    flags: tuple[str, ...]
    libraries: tuple[str, ...] = ("-lm",)
    shared: tuple[str, ...] = ()  # kernel files that every program needs
    pool: int = 0  # bytes of RAM that the program has of its own
    chip: Chip | None = None

    @property
    def threads(self) -> bool:
        return "threads" in self.shared


# A fused multiply-add would make the portable kernels give other bits on other machines; those for
# vectors are written for it.
HOST = Target(
    "host",
    isa=("vec", "ref"),
    flags=("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno"),
    libraries=("-lm", "-pthread"),
    shared=("matmul", "outer", "threads"),
    pool=16,  # a pointer to threads; their stacks come on top, if more than one is asked for
)
PORTABLE = Target("portable", isa=("ref",), flags=("-O3", "-ffp-contract=off"))
CORTEX_M7 = Target(
    "cortex-m7",
    isa=("dsp", "ref"),
    flags=("-O2", "-ffp-contract=off"),
    pool=12,  # the two ends of its channel, and errno
    chip=Chip("cortex-m7", "fpv5-sp-d16", "cortex_m7+fp_armv8d16sp", "mps2-an500"),
)
CORTEX_M4 = replace(
    CORTEX_M7,
    name="cortex-m4",
    chip=Chip("cortex-m4", "fpv4-sp-d16", "cortex_m4+vfp4d16sp", "mps2-an386"),
)
TARGETS = {t.name: t for t in (HOST, PORTABLE, CORTEX_M7, CORTEX_M4)}


def target_named(name: str) -> Target:
    if not isinstance(name, str) or name not in TARGETS:
        raise TargetError(
            f"there is no target {name!r}", try_=[option("target", known) for known in TARGETS]
        )
    return TARGETS[name]
