# make demo: set up and run the main job on the embedded graph. make test: set up, lint, type-check, test.
# make docs: the manual as a site in site/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# --no-compile: Python compiles what is imported, and most of it never is.
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
LOCKED := $(PIP) --require-hashes --no-deps --only-binary :all:
TOOLS := .venv-tools

.PHONY: demo test check-all docs notebooks figures lint lock audit licenses clean

# Every package by its hash, but torch: by its version, in the build that pip finds (requirements/README.md says why).
$(VENV)/.runtime: pyproject.toml constraints.txt requirements/runtime.lock setup.py $(wildcard src/focuse/engines/native/*pp)
	$(PYTHON) -c 'import sys; sys.exit("focuse needs Python 3.11 or newer: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(LOCKED) -r requirements/runtime.lock
	$(BIN)/python $(PIP) -c constraints.txt torch
	$(BIN)/python $(PIP) --no-deps --no-build-isolation -e .
	touch $@

# What tests need in addition.
$(VENV)/.ready: $(VENV)/.runtime requirements/dev.lock
	$(BIN)/python $(LOCKED) -r requirements/dev.lock
	# torchrec asks for builds that only a GPU needs; nothing else may be missing.
	! $(BIN)/python -m pip check --disable-pip-version-check | grep -v -e "^torchrec .* not installed" -e "^No broken"
	touch $@

demo: $(VENV)/.runtime
	$(BIN)/focuse demo --out demo

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# The long ones too: more seeds, real data sets where FOCUSE_DATA names their folder, GPU kernels in Triton's interpreter.
check-all: lint $(VENV)/.check
	$(BIN)/python -m pytest -n 2 --dist worksteal

$(VENV)/.check: $(VENV)/.ready requirements/check.lock
	$(BIN)/python $(LOCKED) -r requirements/check.lock
	touch $@

# The manual as a site that needs neither server nor network: open site/index.html.
docs: $(VENV)/.check
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The pictures of the manual, and its notebooks with what they print (real data sets where FOCUSE_DATA names their folder).
figures: $(VENV)/.check
	$(BIN)/python docs/tools/figures.py

notebooks: $(VENV)/.check
	$(BIN)/python docs/tools/notebooks.py

$(TOOLS)/.ready: requirements/tools.lock
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python $(LOCKED) -r requirements/tools.lock
	touch $@

# Resolve the locks again, after a change of dependencies in pyproject.toml or constraints.txt.
lock: $(TOOLS)/.ready
	$(TOOLS)/bin/python requirements/lock.py

# Known vulnerabilities of what the locks install; says so and goes on where the service cannot be reached.
audit:
	@if $(PYTHON) requirements/audit.py --probe; then \
	  $(MAKE) --no-print-directory $(TOOLS)/.ready && $(TOOLS)/bin/python requirements/audit.py; fi

# Every dependency that is installed, with its license; make licenses ARGUMENTS=--json
licenses: $(VENV)/.ready
	$(BIN)/python requirements/licenses.py $(ARGUMENTS)

clean:
	rm -rf $(VENV) $(TOOLS) demo site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
