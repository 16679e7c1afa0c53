/* The board's functions over semihosting: a breakpoint that the debugger or the emulator
 * handles. */
#include "board.h"

enum {
    OPEN = 0x01,
    WRITE_TEXT = 0x04,
    WRITE = 0x05,
    READ = 0x06,
    EXIT = 0x20,
    READ_BINARY = 1, /* modes of OPEN */
    WRITE_BINARY = 5,
    APPLICATION_EXIT = 0x20026
};

static int32_t commands, answers; /* files */

/* ask */

static int32_t open_file(const char *name, size_t length, uintptr_t mode) {
    const uintptr_t block[3] = {(uintptr_t)name, mode, length};
    return ask(OPEN, block);
}

int board_connect(void) {
    commands = open_file("commands", 8, READ_BINARY);
    answers = commands < 0 ? -1 : open_file("answers", 7, WRITE_BINARY);
    return answers >= 0;
}

/* The result is the number of bytes left; a transfer may take several calls. */
static void transfer(int32_t operation, int32_t file, uintptr_t at, size_t size) {
    while (size > 0) {
        const uintptr_t block[3] = {(uintptr_t)file, at, size};
        const size_t left = (size_t)ask(operation, block);
        if (left >= size) board_stop(98);
        at += size - left;
        size = left;
    }
}

void board_read(void *to, size_t size) { transfer(READ, commands, (uintptr_t)to, size); }

void board_write(const void *from, size_t size) { transfer(WRITE, answers, (uintptr_t)from, size); }

void board_say(const char *text) { ask(WRITE_TEXT, text); }

_Noreturn void board_stop(int code) {
    const uintptr_t block[2] = {APPLICATION_EXIT, (uintptr_t)code};
    ask(EXIT, block);
    for (;;) {}
}
