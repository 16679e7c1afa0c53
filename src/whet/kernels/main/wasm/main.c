/* The network and the arrays of one call, in the module's memory. package/index.js asks where they
 * are, and calls the functions of model.h with their addresses.
 *
@arrays@
 */
#include "model.h"

static struct {
    net_t net;
    _Alignas(16) unsigned char arrays[ARRAY_BYTES]; /* each of them at a multiple of 16 */
} ram;

__attribute__((export_name("net"), used)) net_t *whet_net(void) { return &ram.net; }

__attribute__((export_name("arrays"), used)) unsigned char *whet_arrays(void) { return ram.arrays; }
