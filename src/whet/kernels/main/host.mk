# make         build ./@name@, an example that trains (see main.c)
# make lib     build lib@name@.so with the functions of model.h
CC ?= cc
CFLAGS ?= -O3 -ffp-contract=off
WARN = -std=c11 -Wall -Wextra -Werror -pedantic
SOURCES = model.c weights.c $(wildcard kernels/*.c)

@name@: main.c $(SOURCES)
	$(CC) $(CFLAGS) $(WARN) -I. -Ikernels $^ -lm -o $@

lib: lib@name@.so

lib@name@.so: $(SOURCES)
	$(CC) $(CFLAGS) $(WARN) -fPIC -shared -I. -Ikernels $^ -lm -o $@

clean:
	rm -f @name@ lib@name@.so

.PHONY: lib clean
