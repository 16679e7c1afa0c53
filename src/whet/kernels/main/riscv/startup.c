/* From reset to main: stack pointer, traps, memory protection, memory, floating point. */
#include <stdint.h>

#include "board.h"

/* Section boundaries, from link.ld. */
extern uint32_t data_image[], data_begin[], data_end[], bss_begin[], bss_end[];
extern uint32_t stack_begin[], stack_end[];

enum { PAINT = 0x5EA5C0DE, MARGIN = 16 }; /* words below the stack pointer that are not painted */

int main(void);
void reset(void);
void start(void);
void trap(void);
void fault(uint32_t stack_pointer);

/* errno of the C library, which is its only variable of a thread. */
static volatile int library_error;

/* Every trap is a fault, and none returns. The stack pointer may be outside of the memory. */
__attribute__((naked, aligned(4))) void trap(void) {
    __asm__ volatile("mv a0, sp\n la sp, stack_end\n j fault");
}

__attribute__((used)) void fault(uint32_t stack_pointer) {
    board_stop(stack_pointer < (uint32_t)(uintptr_t)stack_begin ? 96 : 99);
}

/* Nothing between flash and RAM can be reached, so that a stack overflow is a fault: entry 1 of the
 * memory protection is the range from the address of entry 0 on, locked, without permissions. A
 * processor without that protection traps, and goes on behind it. */
__attribute__((naked, section(".vectors"), used)) void reset(void) {
    __asm__ volatile(".option push\n .option arch, +zicsr\n" /* some compilers want it said */
                     "la sp, stack_end\n"
                     "la t0, 1f\n"
                     "csrw mtvec, t0\n"
                     "la t0, flash_end\n srli t0, t0, 2\n csrw pmpaddr0, t0\n"
                     "la t0, stack_begin\n srli t0, t0, 2\n csrw pmpaddr1, t0\n"
                     "li t0, 0x8800\n csrw pmpcfg0, t0\n"
                     ".balign 4\n"
                     "1: la t0, trap\n"
                     "csrw mtvec, t0\n"
                     "la tp, %0\n"
#ifdef __riscv_flen
                     "li t0, 0x2000\n csrs mstatus, t0\n" /* enable the floating-point unit */
                     "csrw fcsr, x0\n"
#endif
                     "j start\n .option pop" ::"i"(&library_error));
}

__attribute__((used)) void start(void) {
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
