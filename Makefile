# Two commands from a fresh clone: `make demo` and `make test`. Nothing but Python 3.11+, its venv module and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test explore fast wheel pure lint format soak fuzz test-vllm bench-overhead bench-decision clean

help: ## this list
	@grep -E '^[a-z-]+: .* ##|^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned packages into $(VENV) (once; about a minute) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[test,engines,sim,lint]'
	@touch $@

$(VENV)/sdk-%/.installed: tests/sdk/openai-%.txt | $(STAMP)
	@echo "installing OpenAI SDK $*.x for the compatibility tests ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade --target $(VENV)/sdk-$* -r $<
	@touch $@

demo: $(STAMP) ## four emulated replicas, the gateway, a chat workload, two policies compared
	@$(BIN)/headway demo $(ARGS)

test: $(STAMP) $(VENV)/sdk-1/.installed $(VENV)/sdk-2/.installed ## the whole test suite (under 15 minutes on 2 cores)
	$(BIN)/python -m pytest $(ARGS)

explore: $(STAMP) ## the properties of the test suite, on other examples each time (`make test` has the same ones each time)
	HEADWAY_EXPLORE=1 $(BIN)/python -m pytest -m hypothesis $(ARGS)

test-vllm: $(STAMP) ## the real-engine suite against two vLLM servers on the CPU (2.5 GB, installed once into .venv-vllm)
	@PYTHON=$(PYTHON) tests/real/install_vllm.sh
	HEADWAY_REAL_ENGINE=vllm $(BIN)/python -m pytest tests/real --timeout 600 $(ARGS)

soak: $(STAMP) ## the same cases at full size, half an hour of everything, and a longer fuzz (about an hour)
	HEADWAY_SOAK=1 $(BIN)/python -m pytest tests/cases tests/gateway tests/wire tests/core/test_prefix.py tests/core/test_walk.py --timeout 2700 $(ARGS)
	$(BIN)/python -m fuzz.run --seconds 300

fuzz: $(STAMP) ## mutate inputs of every parser for a minute; findings are kept in tests/corpus
	$(BIN)/python -m fuzz.run --seconds 60 $(ARGS)

bench-overhead: $(STAMP) ## CPU per request beside nginx, haproxy, envoy and LLM routers (python benchmarks/peers.py install first)
	$(BIN)/python benchmarks/overhead.py $(ARGS)

bench-decision: $(STAMP) ## microseconds per decision by fleet size
	$(BIN)/python benchmarks/decision.py $(ARGS)

SETUPTOOLS = $(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77'
COMPILE = $(BIN)/python setup.py --quiet build_ext --inplace --force > build-fast.log 2>&1 || { tail -n 20 build-fast.log; exit 1; }

fast: $(STAMP) ## compile the hot modules (compiled.txt; needs a C compiler), for half the CPU; with gcc by a profile, six minutes
	@$(SETUPTOOLS)
ifneq ($(findstring Free Software Foundation,$(shell $(CC) --version 2>/dev/null)),)
	@echo "1 of 3: compiling with counters (some three minutes) ..."
	@find . -name '*.gcda' -delete
	@HEADWAY_COMPILE=count $(COMPILE)
	@echo "2 of 3: counting what a gateway and a simulator do ..."
	@$(BIN)/python benchmarks/training.py
	@echo "3 of 3: compiling by what was counted (some three minutes) ..."
	@HEADWAY_COMPILE=counted $(COMPILE)
else
	@echo "compiling (some three minutes; with gcc a profile would make it 8 % faster still) ..."
	@HEADWAY_COMPILE=1 $(COMPILE)
endif
	@$(BIN)/headway --version

wheel: $(STAMP) ## a wheel in dist/ with the hot modules compiled (after `make fast`: by its profile), for this platform and Python
	@$(SETUPTOOLS)
	HEADWAY_COMPILE=$$(test -n "$$(find build -name '*.gcda' 2>/dev/null)" && echo counted || echo 1) \
		$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps -w dist .

pure: ## remove what `make fast` has made: everything runs as plain Python again
	find src -name '*.so' -delete
	rm -rf build build-fast.log

lint: $(STAMP) ## ruff, format, strict types, the floors of the house
	$(BIN)/ruff check src tests benchmarks fuzz
	$(BIN)/ruff format --check src tests benchmarks fuzz
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMP) ## rewrite the layout of the code
	$(BIN)/ruff format src tests benchmarks fuzz
	$(BIN)/ruff check --fix src tests benchmarks fuzz

clean: pure ## remove what make has made
	rm -rf $(VENV) .venv-* build dist src/*.egg-info .mypy_cache .ruff_cache .hypothesis
