/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin for QEMU that watches a microcontroller: it counts instructions, loads and stores, finds
 * every access outside of the memory that there is, and how deep the stack went.
 *
 *   -plugin watch.so,ram=LOW:HIGH,flash=LOW:HIGH,stack=LOW:HIGH,own=LOW:HIGH,function=LOW:HIGH,
 *       start=AT,out=FILE
 *
 * FILE gets a line of name and number for each finding. It counts from the instruction at `start`
 * on, and looks where the program reaches from the first one on. Of every instruction in `function`
 * it also gets the address, and the instructions from there to the next one in it: those of what it
 * calls.
 * The declarations are those of the plugin interface, version 1 (QEMU 4.2 to 8.1), as no header of
 * it is installed. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*on_block_t)(uint64_t id, struct qemu_plugin_tb *block);
typedef void (*on_run_t)(unsigned cpu, void *data);
typedef void (*on_access_t)(unsigned cpu, uint32_t info, uint64_t address, void *data);

enum { NO_REGISTERS = 0, ADD = 0, READ_AND_WRITE = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, on_block_t f);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*f)(uint64_t, void *), void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, on_run_t f, int, void *data);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, on_access_t f, int, int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
bool qemu_plugin_mem_is_store(uint32_t info);
unsigned qemu_plugin_mem_size_shift(uint32_t info);

EXPORT int qemu_plugin_version = 1;

typedef struct {
    uint64_t low, high; /* high is the first that is not in it */
} span_t;

static bool holds(span_t s, uint64_t first, uint64_t bytes) {
    return first >= s.low && first + bytes <= s.high;
}

static span_t ram, flash, stack, function;
static span_t own; /* the processor's registers */
static uint64_t start;
static FILE *out;

static uint64_t instructions, loads, stores, registers, outside, first_outside, deepest;

/* Of the instructions in `function`: what ran from each of them on, and the latest of them. The way
 * out of the function is not seen: what its caller does counts for its last instruction, which is
 * one that calls nothing. */
static uint64_t *spent, spent_by_now;
static size_t latest;

static void attribute_until_now(void) {
    if (latest != SIZE_MAX) spent[latest] += instructions - spent_by_now;
    spent_by_now = instructions;
}

static void on_run(unsigned cpu, void *data) {
    (void)cpu;
    attribute_until_now();
    latest = (size_t)(uintptr_t)data;
}

static void on_start(unsigned cpu, void *data) {
    (void)cpu;
    (void)data;
    instructions = loads = stores = registers = 0;
    deepest = stack.high;
}

static void on_access(unsigned cpu, uint32_t info, uint64_t address, void *data) {
    const uint64_t bytes = UINT64_C(1) << qemu_plugin_mem_size_shift(info);
    const bool store = qemu_plugin_mem_is_store(info);
    (void)cpu;
    (void)data;
    if (store)
        stores++;
    else
        loads++;
    if (holds(ram, address, bytes)) {
        if (store && address >= stack.low && address < stack.high && address < deepest)
            deepest = address;
    } else if (!store && holds(flash, address, bytes)) {
        return;
    } else if (holds(own, address, bytes)) {
        registers++;
    } else if (outside++ == 0) {
        first_outside = address;
    }
}

static void on_block(uint64_t id, struct qemu_plugin_tb *block) {
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, i);
        const uint64_t at = qemu_plugin_insn_vaddr(one);
        if (holds(function, at, 2)) {
            void *index = (void *)(uintptr_t)((at - function.low) / 2);
            qemu_plugin_register_vcpu_insn_exec_cb(one, on_run, NO_REGISTERS, index);
        }
        if (at == start) qemu_plugin_register_vcpu_insn_exec_cb(one, on_start, NO_REGISTERS, NULL);
        qemu_plugin_register_vcpu_insn_exec_inline(one, ADD, &instructions, 1);
        qemu_plugin_register_vcpu_mem_cb(one, on_access, NO_REGISTERS, READ_AND_WRITE, NULL);
    }
}

static void say(const char *name, uint64_t number) {
    fprintf(out, "%s %llu\n", name, (unsigned long long)number);
}

static void on_exit(uint64_t id, void *data) {
    (void)id;
    (void)data;
    attribute_until_now();
    say("instructions", instructions);
    say("loads", loads);
    say("stores", stores);
    say("registers", registers);
    say("outside", outside);
    say("first_outside", first_outside);
    say("stack", stack.high - deepest);
    for (size_t i = 0; i < (function.high - function.low) / 2; i++)
        if (spent[i] > 0)
            fprintf(out, "at %llu %llu\n", (unsigned long long)(function.low + 2 * i),
                    (unsigned long long)spent[i]);
    fclose(out);
}

static bool read_span(const char *text, span_t *to) {
    char *end;
    to->low = strtoull(text, &end, 0);
    if (*end != ':') return false;
    to->high = strtoull(end + 1, &end, 0);
    return *end == '\0' && to->high >= to->low;
}

static bool read_argument(const char *text) {
    const struct {
        const char *name;
        span_t *span;
    } spans[] = {{"ram=", &ram},
                 {"flash=", &flash},
                 {"stack=", &stack},
                 {"own=", &own},
                 {"function=", &function}};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        if (strncmp(text, spans[i].name, strlen(spans[i].name)) == 0)
            return read_span(text + strlen(spans[i].name), spans[i].span);
    if (strncmp(text, "start=", 6) == 0) {
        char *end;
        start = strtoull(text + 6, &end, 0);
        return *end == '\0';
    }
    if (strncmp(text, "out=", 4) != 0) return false;
    out = fopen(text + 4, "w");
    return out != NULL;
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments) {
    (void)info;
    for (int i = 0; i < count; i++)
        if (!read_argument(arguments[i])) {
            fprintf(stderr, "watch: cannot make sense of %s\n", arguments[i]);
            return 1;
        }
    spent = calloc((function.high - function.low) / 2 + 1, sizeof *spent);
    if (out == NULL || spent == NULL) return 1;
    latest = SIZE_MAX;
    deepest = stack.high;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    qemu_plugin_register_atexit_cb(id, on_exit, NULL);
    return 0;
}
