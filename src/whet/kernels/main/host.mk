# make         build ./@name@, an example that trains (see main.c)
# make lib     build lib@name@.so with the functions of model.h
# make size    show the sections: @of_memory@ is the RAM in report.txt, to the byte
CC ?= cc
CFLAGS ?= @flags@
WARN = -std=c11 -Wall -Wextra -Werror -pedantic
SOURCES = model.c weights.c @kernels@
OTHERS = Makefile $(wildcard *.h kernels/*.h kernels/*/*.h weights.bin)

@name@: main.c $(SOURCES) $(OTHERS)
	$(CC) $(CFLAGS) $(WARN) -I. -Ikernels $(filter %.c,$^) $(LDFLAGS) @libraries@ -o $@

lib: lib@name@.so

lib@name@.so: $(SOURCES) $(OTHERS)
	$(CC) $(CFLAGS) $(WARN) -fPIC -shared -I. -Ikernels $(filter %.c,$^) $(LDFLAGS) @libraries@ -o $@

size: @name@.o
	size $<

@name@.o: main.c $(SOURCES) $(OTHERS)
	$(CC) $(CFLAGS) $(WARN) -I. -Ikernels -fno-pie -nostdlib -r $(filter %.c,$^) -o $@

clean:
	rm -f @name@ @name@.o lib@name@.so

.PHONY: lib size clean
