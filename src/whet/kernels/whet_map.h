/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_MAP_H
#define WHET_MAP_H

#include <stdint.h>

typedef enum {
    WHET_MAP_OK,
    WHET_MAP_NO_FILE,   /* it cannot be opened or mapped */
    WHET_MAP_TRUNCATED, /* it is shorter than expected */
    WHET_MAP_FOREIGN    /* it is another file */
} whet_map_t;

whet_map_t whet_map(const char *path, uint64_t size, uint64_t identity,
                    const unsigned char **content);

#endif
