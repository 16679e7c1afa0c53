/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_LANES_H
#define WHET_LANES_H

/* Floats worked on at once. Sums run in that many independent lanes, which a compiler can map to
 * vector registers without being allowed to reorder anything. The number is part of what a sum is:
 * another one would give other bits. */
#ifndef WHET_LANES
#define WHET_LANES 8
#endif

#endif
