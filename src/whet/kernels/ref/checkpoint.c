/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    CRC-32 (IEEE 802.3, reflected) of n bytes, continued from crc
 * shapes     data[n]
 * aliasing   reads only
 * rounding   exact
 * workspace  none; a table of 16 words in flash */
uint32_t whet_crc32(const void *data, size_t n, uint32_t crc) {
    static const uint32_t table[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u,
        0x4DB26158u, 0x5005713Cu, 0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu,
        0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
    };
    const uint8_t *byte = data;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= byte[i];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}

enum { MAGIC = 0x54454857, VERSION = 1 }; /* "WHET", little-endian */

/* The first bytes of a checkpoint. `crc` covers the payload that follows. */
typedef struct {
    uint32_t magic, version, model, crc;
    uint64_t bytes;
} header_t;

/* formula    buffer = header, then every span's bytes; returns the bytes that takes
 * shapes     buffer[size], spans[count]; nothing is written if size is too small
 * aliasing   buffer must not overlap a span
 * rounding   exact
 * workspace  none */
size_t whet_checkpoint_save(void *buffer, size_t size, uint32_t model,
                            const whet_const_bytes_t *spans, int32_t count) {
    header_t header = {MAGIC, VERSION, model, 0, 0};
    for (int32_t i = 0; i < count; i++) {
        header.bytes += spans[i].bytes;
        header.crc = whet_crc32(spans[i].data, spans[i].bytes, header.crc);
    }
    const size_t needed = sizeof header + (size_t)header.bytes;
    if (!buffer || size < needed) return needed;
    uint8_t *place = buffer;
    memcpy(place, &header, sizeof header);
    place += sizeof header;
    for (int32_t i = 0; i < count; i++) {
        memcpy(place, spans[i].data, spans[i].bytes);
        place += spans[i].bytes;
    }
    return needed;
}

/* formula    every span = its bytes in buffer, if the whole buffer is sound; else nothing changes
 * shapes     buffer[size], spans[count]
 * aliasing   buffer must not overlap a span
 * rounding   exact
 * workspace  none */
whet_checkpoint_t whet_checkpoint_load(const void *buffer, size_t size, uint32_t model,
                                       const whet_bytes_t *spans, int32_t count) {
    header_t header;
    size_t bytes = 0;
    for (int32_t i = 0; i < count; i++) bytes += spans[i].bytes;
    if (!buffer || size < sizeof header) return WHET_CHECKPOINT_TRUNCATED;
    memcpy(&header, buffer, sizeof header);
    if (header.magic != MAGIC) return WHET_CHECKPOINT_CORRUPT;
    if (header.version != VERSION || header.model != model || header.bytes != bytes)
        return WHET_CHECKPOINT_FOREIGN;
    if (size < sizeof header + bytes) return WHET_CHECKPOINT_TRUNCATED;
    const uint8_t *place = (const uint8_t *)buffer + sizeof header;
    if (size > sizeof header + bytes || whet_crc32(place, bytes, 0) != header.crc)
        return WHET_CHECKPOINT_CORRUPT;
    for (int32_t i = 0; i < count; i++) {
        memcpy(spans[i].data, place, spans[i].bytes);
        place += spans[i].bytes;
    }
    return WHET_CHECKPOINT_OK;
}
