/* What the program needs from its board: a channel to a host that has data. This implementation
 * uses the debugger's (semihosting), which emulators also support; for a serial line, reimplement
 * these functions. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

/* Whether a host is connected. */
int board_connect(void);
/* Transfer all bytes; does not return if the host is gone. */
void board_read(void *to, size_t size);
void board_write(const void *from, size_t size);
/* Print a line of text. */
void board_say(const char *text);
/* The most bytes of stack used so far. */
uint32_t board_stack_used(void);
_Noreturn void board_stop(int code);

#endif
