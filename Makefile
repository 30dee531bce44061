# make demo: set up and run the main job on the embedded graph. make test: set up, lint, type-check, test.
# make docs: the manual as a site in site/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check-all docs notebooks figures lint clean

$(VENV)/.ready: pyproject.toml constraints.txt setup.py $(wildcard src/focuse/engines/native/*pp)
	$(PYTHON) -c 'import sys; sys.exit("focuse needs Python 3.11 or newer: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.ready
	$(BIN)/focuse demo --out demo

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# The long ones too: more seeds, real data sets where FOCUSE_DATA names their folder, GPU kernels in Triton's interpreter.
check-all: lint
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,check]'
	$(BIN)/python -m pytest -n 2 --dist worksteal

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]' nbclient ipykernel
	touch $@

# The manual as a site that needs neither server nor network: open site/index.html.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The pictures of the manual, and its notebooks with what they print (real data sets where FOCUSE_DATA names their folder).
figures: $(VENV)/.docs
	$(BIN)/python docs/tools/figures.py

notebooks: $(VENV)/.docs
	$(BIN)/python docs/tools/notebooks.py

clean:
	rm -rf $(VENV) demo site build dist .pytest_cache .mypy_cache .ruff_cache
