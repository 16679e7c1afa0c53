/* From reset to main: vector table, memory, floating point. */
#include <stdint.h>

#include "board.h"

/* Section boundaries, from link.ld. */
extern uint32_t data_image[], data_begin[], data_end[], bss_begin[], bss_end[];
extern uint32_t stack_begin[], stack_end[];

enum { PAINT = 0x5EA5C0DE, MARGIN = 16 }; /* words below the stack pointer that are not painted */

int main(void);
void reset(void);
int *__errno(void);
extern const int __fdlib_version;

/* errno for the C library. newlib's own is part of a larger struct, which nothing here needs. */
static volatile int library_error;

static void fault(void) { board_stop(99); }

void reset(void) {
    volatile uint32_t *const coprocessors = (volatile uint32_t *)0xE000ED88u;
    *coprocessors |= 0xFu << 20; /* enable the floating-point unit */
    __asm__ volatile("dsb\n isb" ::: "memory");
    for (uint32_t *to = data_begin, *from = data_image; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_begin; to < bss_end;) *to++ = 0;
    uint32_t *const here = (uint32_t *)__builtin_frame_address(0) - MARGIN;
    for (uint32_t *to = stack_begin; to < here;) *to++ = PAINT;
    library_error = 0;
    board_stop(main());
}

uint32_t board_stack_used(void) {
    const uint32_t *word = stack_begin;
    while (word < stack_end && *word == PAINT) word++;
    return (uint32_t)((const char *)stack_end - (const char *)word);
}

int *__errno(void) { return (int *)&library_error; }

/* newlib's math functions report errors as in IEEE 754, not through a variable in RAM. */
const int __fdlib_version = -1;

/* The vector table: the initial stack pointer, then the handlers. */
static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors __attribute__((section(".vectors"), used)) = {
    stack_end,
    {reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault},
};
