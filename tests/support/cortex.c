/* Starts a program on a Cortex-M in an emulator: standard input is the file "calls", standard
 * output the file "results" of the folder that the emulator was started in. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void);
void reset(void);
void initialise_monitor_handles(void);
extern char stack_top[];

static void fault(void) {
    register const uint32_t operation __asm__("r0") = 0x20; /* exit, with a code */
    const uint32_t block[2] = {0x20026, 99};
    register const uint32_t *address __asm__("r1") = block;
    __asm__ volatile("bkpt 0xAB" : : "r"(operation), "r"(address) : "memory");
    for (;;) {}
}

typedef struct {
    char *stack;
    void (*handlers[15])(void);
} vectors_t;

__attribute__((section(".vectors"), used)) static const vectors_t vectors = {
    stack_top, {reset, fault, fault, fault, fault, fault}};

__attribute__((noinline)) static void run(void) {
    static char in[1 << 16], out[1 << 16];
    initialise_monitor_handles();
    if (!freopen("calls", "rb", stdin) || !freopen("results", "wb", stdout)) exit(98);
    setvbuf(stdin, in, _IOFBF, sizeof in);
    setvbuf(stdout, out, _IOFBF, sizeof out);
    exit(main());
}

/* Access to the FPU first, for all code that follows may use it. */
__attribute__((noreturn)) void reset(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
    __asm__ volatile("dsb\n\tisb" : : : "memory");
    run();
    for (;;) {}
}
