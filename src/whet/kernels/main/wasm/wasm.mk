# make         build package/@name@.wasm, which package/index.js loads
# make run     train in Node, on a made-up batch
# CC='... --target=wasm32-wasi' chooses a compiler; the default is clang with lld and wasi-libc, or
# else the Python package ziglang, whose first run takes a minute
ifeq ($(origin CC),default)
ifneq ($(shell command -v wasm-ld),)
CC = clang --target=wasm32-wasi
else
CC = python3 -m ziglang cc -target wasm32-wasi -fno-sanitize=all
endif
endif
FLAGS = @flags@
WARN = -std=c11 -Wall -Wextra -Werror -pedantic
LINK = -mexec-model=reactor -Wl,--strip-debug -Wl,-z,stack-size=@stack@ \
    -Wl,--initial-memory=@initial@ -Wl,--max-memory=@most@
ifeq ($(filter zig %/zig ziglang,$(CC)),) # which puts the stack first by itself
LINK += -Wl,--stack-first
endif
EXPORTS = @exports@

SOURCES = main.c model.c weights.c @kernels@
HEADERS = $(wildcard *.h kernels/*.h kernels/*/*.h)

package/@name@.wasm: $(SOURCES:%.c=build/%.o)
	$(CC) $(FLAGS) $(LINK) $(EXPORTS:%=-Wl,--export=%) $^ -lm -o $@

build/%.o: %.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(WARN) -I. -Ikernels -c $< -o $@

build/weights.o: $(wildcard weights.bin)

run: package/@name@.wasm
	node example.mjs

clean:
	rm -rf build package/@name@.wasm

.PHONY: run clean
