/* SPDX-License-Identifier: Apache-2.0 */
#ifdef _WIN32
#error "weights are mapped by functions of POSIX, which Windows does not have"
#endif

#define _POSIX_C_SOURCE   200809L
#define _FILE_OFFSET_BITS 64
#include "whet_map.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 24 };

/* The magic, the size of the file and its checksum; numbers are little-endian. */
static void expected(unsigned char *header, uint64_t size, uint64_t identity) {
    memcpy(header, "whetwts1", 8);
    for (int i = 0; i < 8; i++) {
        header[8 + i] = (unsigned char)(size >> 8 * i);
        header[16 + i] = (unsigned char)(identity >> 8 * i);
    }
}

static whet_map_t map_open(int file, uint64_t size, uint64_t identity,
                           const unsigned char **content) {
    unsigned char header[HEADER], found[HEADER];
    struct stat about;
    expected(header, size, identity);
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return WHET_MAP_NO_FILE;
    if (about.st_size < HEADER) return WHET_MAP_TRUNCATED;
    if (read(file, found, HEADER) != HEADER) return WHET_MAP_NO_FILE;
    if (memcmp(header, found, HEADER) != 0) return WHET_MAP_FOREIGN;
    if ((uint64_t)about.st_size < size) return WHET_MAP_TRUNCATED;
    if ((uint64_t)about.st_size > size || size > SIZE_MAX) return WHET_MAP_FOREIGN;
    void *start = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, file, 0);
    if (start == MAP_FAILED) return WHET_MAP_NO_FILE;
    *content = start;
    return WHET_MAP_OK;
}

/* formula    content = the bytes of the file, if its header has this size and identity
 * shapes     content[size]; unchanged unless the result is WHET_MAP_OK
 * aliasing   pages are shared by all processes that map the file, and read when they are used
 * rounding   exact
 * workspace  none */
whet_map_t whet_map(const char *path, uint64_t size, uint64_t identity,
                    const unsigned char **content) {
    const int file = open(path, O_RDONLY);
    if (file < 0) return WHET_MAP_NO_FILE;
    const whet_map_t result = map_open(file, size, identity, content);
    close(file);
    return result;
}
