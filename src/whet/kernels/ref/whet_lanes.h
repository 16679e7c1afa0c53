/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_LANES_H
#define WHET_LANES_H

/* Floats worked on at once. Sums run in that many independent lanes, which a compiler can map to
 * vector registers without being allowed to reorder anything. A Cortex-M has 32 scalar registers
 * and no vectors: a smaller tile stays in them. */
#ifndef WHET_LANES
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
#define WHET_LANES 2
#else
#define WHET_LANES 8
#endif
#endif

#endif
