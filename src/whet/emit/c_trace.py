"""Write the C that measures a training step: model.c, with a clock read around each kernel call.

It is built in place of model.c, which stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report.program import kernel_calls

if TYPE_CHECKING:
    from .program import Program

UNIT = "trace"  # the name of the file, without suffix


def trace_c(program: Program) -> str:
    """Every kernel of the step becomes a macro that calls it and reads the clock before and after.

    A macro is not expanded within itself, so the kernel of the same name is what it calls.
    """
    calls = kernel_calls(program.plans["train_step"])
    kernels = sorted({call.kernel for call in calls})
    includes = "\n".join(f'#include "{name}"' for name in program.declaring)
    macros = "\n".join(f"#define {name}(...) TIMED({name}(__VA_ARGS__))" for name in kernels)
    return f"""/* model.c, with the time of every kernel call of a training step. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <time.h>

#include "model.h"
{includes}

int32_t {program.name}_trace(int64_t *times);

enum {{ MOST = {2 * len(calls)} }};
static int64_t readings[MOST]; /* nanoseconds: before a call, after it, before the next, ... */
static int32_t taken;

static void reading(void) {{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (taken < MOST) readings[taken++] = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}}

/* Give back the readings since the last call of this function, and how many there are. */
int32_t {program.name}_trace(int64_t *times) {{
    const int32_t count = taken;
    for (int32_t i = 0; i < count; i++) times[i] = readings[i];
    taken = 0;
    return count;
}}

#define TIMED(call) (reading(), call, reading())
{macros}

#include "model.c"
"""
