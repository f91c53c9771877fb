# make run and make test set up .venv themselves; a stamp there keeps repeated calls quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What `make run` generates with: MODEL is a folder, a .gguf, a .bin or a Hugging Face id; without
# one it is the model that comes with Luminal.
export MODEL ?=
export PROMPT ?= ROMEO:
ARGS ?=

# Tests start many processes, which read what the first one has compiled of the sources.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-long conformance lint aarch64 docs names mutants bench bench-check wheel clean

run: $(VENV)/.installed
	@$(BIN)/luminal generate --model "$$MODEL" --prompt "$$PROMPT" --temperature 0.8 --stats $(ARGS)

# Each process that tests has a core: threads of what it compares with would only spin.
test test-long: export OMP_NUM_THREADS := 1
test test-long: export OPENBLAS_NUM_THREADS := 1

# All short tests; of those that take most of the time (tests/slow.txt) a fourth, another one each day.
test: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder \
		--slow-share $$(($$(date +%s) / 86400 % 4))/4 $(ARGS)

test-long: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -m long $(ARGS)

conformance: $(VENV)/.installed-test
	@$(BIN)/python -m tests.conformance.opinfo_run --list tests/conformance/opinfo.txt $(ARGS)

lint: $(VENV)/.installed-test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.lint.docstrings
	@$(BIN)/python -m tests.lint.language
	@$(BIN)/python -m tests.lint.unused
	@$(BIN)/python -m tests.lint.tolerances
	@$(BIN)/python -m tests.lint.platforms

# On AArch64 under emulation (qemu-user); fetches what it needs the first time.
aarch64:
	@tests/aarch64/run $(ARGS)

# The site, in build/site: it opens from there, and nothing of it is fetched.
docs: $(VENV)/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build $(ARGS)

# After a change of the table of names, or of a public name.
names: $(VENV)/.installed-test
	@$(BIN)/python -m tests.names

mutants: $(VENV)/.installed-test
	@$(BIN)/python -m tests.mutants $(ARGS)

bench: $(VENV)/.installed-test
	@$(BIN)/python -m bench $(ARGS)

bench-check: $(VENV)/.installed-test
	@$(BIN)/python -m bench.check $(ARGS)

# What an earlier build left in build/lib would be packed too; build/bench holds records.
wheel: | $(BIN)/python
	@rm -rf build/lib build/bdist.*
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@rm -rf build/lib build/bdist.*
	@ls dist/*.whl

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[search]'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $(VENV)/.installed $@
