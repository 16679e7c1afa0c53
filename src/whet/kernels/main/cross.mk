# make         build @name@@suffix@ for @target@, an example that trains (see main.c)
# make lib     build lib@name@.a, with the functions of model.h; @name@.pc describes it
# make run     run the example
# The compiler is in the Python package ziglang: pip install ziglang. Its first build for a machine
# builds the C library too, and takes a minute.
ZIG ?= python3 -m ziglang
CC = $(ZIG) cc @machine@
CFLAGS ?= @flags@
ALL = $(CFLAGS) -g0 -fno-sanitize=all -std=c11 -Wall -Wextra -Werror -pedantic -I. -Ikernels
MODEL = model.c weights.c @kernels@
HEADERS = Makefile $(wildcard *.h kernels/*.h)
objects = $(patsubst %.c,build/%.o,$(1))

ifneq ($(MAKECMDGOALS),clean)
ifeq ($(shell $(ZIG) version 2>/dev/null),)
$(error $(ZIG) does not run; try: pip install ziglang, or make ZIG=zig)
endif
endif

@name@@suffix@: $(call objects,main.c $(MODEL))
	$(CC) $(ALL) $^ @libraries@ -o $@

build/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(ALL) -c $< -o $@

build/weights.o: $(wildcard weights.bin)

lib: lib@name@.a

lib@name@.a: $(call objects,$(MODEL))
	rm -f $@
	$(ZIG) ar rcs $@ $^

run: @name@@suffix@
	@run@$<

clean:
	rm -rf build @name@@suffix@ lib@name@.a

.PHONY: lib run clean
