# make         build @name@.elf for @target@, with start-up code and linker script
# make run     train in the emulator (@emulator@), on the samples in samples.c if there are any
# make lib     build lib@name@.a: only the functions of model.h, for a project with its own
#              start-up code; it needs no other sources than those of MODEL
# make size    show the sections: data + bss + stack is the RAM in report.txt
CROSS ?= @cross@
CHIP = @chip@
FLAGS = @flags@ -std=c11 -Wall -Wextra -Werror -pedantic -ffunction-sections -fdata-sections \
    -I. -Ikernels -Iboard
ifneq ($(shell command -v $(CROSS)gcc),)
CC = $(CROSS)gcc
AR = $(CROSS)ar
ALL = $(CHIP) $(FLAGS)
LINK = $(CHIP) -nostartfiles @link@ -Wl,--gc-sections -Wl,--no-warn-rwx-segments
LIBS = -lm
else # no @architecture@ toolchain: use the Python package ziglang; its first run takes a minute
ZIG ?= python3 -m ziglang
CC = $(ZIG) cc
AR = $(ZIG) ar
ALL = -target @zig_target@ -mcpu=@zig_cpu@ -g0 -fno-sanitize=all \
    -fomit-frame-pointer -isystem board/libc $(FLAGS)
LINK = $(ALL) -Wl,--gc-sections -Wl,-e,reset
endif

MODEL = model.c weights.c @kernels@
BOARD = main.c $(wildcard samples.c) board/startup.c board/board.c
KERNEL_HEADERS = $(wildcard kernels/*.h board/libc/*.h)
HEADERS = $(wildcard *.h board/*.h) $(KERNEL_HEADERS)
objects = $(patsubst %.c,build/%.o,$(1))

@name@.elf: $(call objects,$(MODEL) $(BOARD)) board/link.ld
	$(CC) $(LINK) $(filter %.o,$^) -T board/link.ld $(LIBS) -o $@

build/kernels/%.o: kernels/%.c $(KERNEL_HEADERS) Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL) -c $< -o $@

build/%.o: %.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL) -c $< -o $@

build/weights.o: $(wildcard weights.bin)

lib: lib@name@.a

lib@name@.a: $(call objects,$(MODEL))
	rm -f $@
	$(AR) rcs $@ $^

run: @name@.elf
	@emulator@ -M @machine@ -nographic -monitor none -serial none \
	    -semihosting-config enable=on,target=native @start@$<

size: @name@.elf
	$(CROSS)size -A $< | grep -v '^\.debug'

clean:
	rm -rf build @name@.elf lib@name@.a

.PHONY: lib run size clean
