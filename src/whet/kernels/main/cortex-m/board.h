/* What the program wants of the board it runs on: a channel to somebody who has data. Here it is
 * the debugger's (semihosting), which an emulator has too; a serial line needs these functions. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

/* Whether somebody is at the other end. */
int board_connect(void);
/* All of these bytes; does not return if the other end is gone. */
void board_read(void *to, size_t size);
void board_write(const void *from, size_t size);
/* A line for a person to read. */
void board_say(const char *text);
/* Bytes of stack that were in use at some time. */
uint32_t board_stack_used(void);
_Noreturn void board_stop(int code);

#endif
