/* The parts of the C library that programs use, for compilers without one; they provide these
 * functions themselves. */
#ifndef WHET_STRING_H
#define WHET_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);

#endif
