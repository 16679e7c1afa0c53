/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_LANES_H
#define WHET_LANES_H

/* Floats processed at once. Sums run in that many independent lanes, which a compiler can map to
 * vector registers without reordering anything. The number is the same everywhere, because the bits
 * of a sum depend on it. */
#define WHET_LANES 8

#endif
