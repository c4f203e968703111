# make reproduce   set up, then the main job: the paper's figures under report/
# make test        set up, then lint, types and all tests
# make check       the same with the fast tests only, in about a minute
# make dist        source archive and wheel under dist/, checked, and the wheel tried in an empty environment
# make docs        set up, then the documentation as a site: site/index.html, to be opened from disk
# make setup       only the environment: .venv/bin/strang

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.ready
UV := $(shell command -v uv 2>/dev/null)
FOUND := $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: setup reproduce test check lint docs bench dist clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
ifeq ($(FOUND),)
	@echo "Strang needs Python 3.11 or newer with its venv module; none was found on PATH." >&2; exit 1
endif
ifneq ($(UV),)
	$(UV) venv --quiet --allow-existing --python $(FOUND) $(VENV)
	$(UV) pip install --quiet --compile-bytecode --python $(PYTHON) -c constraints.txt -e '.[dev]'
else
	$(FOUND) -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
endif
	@touch $(STAMP)

reproduce: setup
	$(VENV)/bin/strang reproduce --quick --out report

# Bytecode is kept also where the surroundings say otherwise: each worker would translate all tests and sources anew.
test: lint
	PYTHONDONTWRITEBYTECODE= $(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 20  # a file makes its reports once

# What takes a minute: most rooms without what compiles much, kills processes or opens a browser.
FAST := tests/test_architecture.py tests/util tests/integrators tests/models tests/cli tests/run/test_summary.py \
	tests/data/test_sources.py tests/data/test_images.py tests/theory/test_algebra.py tests/theory/test_linear.py tests/theory/test_theory.py \
	tests/lda/test_corpus.py tests/lda/test_prepare.py tests/lda/test_wikitext.py tests/lda/test_completion.py

check: lint
	PYTHONDONTWRITEBYTECODE= $(PYTHON) -m pytest -n 2 --dist loadfile $(FAST)

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Links are checked by mkdocs (strict), spelling and style by words.py; three pages are executed as notebooks. tests/
# test_docs.py builds the same site, runs every block of it and opens it in a browser.
docs: setup
	$(PYTHON) docs/tools/words.py
	NO_MKDOCS_2_WARNING=1 STRANG_NOTEBOOKS=run $(VENV)/bin/mkdocs build --quiet
	@echo "Open site/index.html"

bench: setup
	$(PYTHON) benchmarks/speed.py
	$(PYTHON) benchmarks/disk.py --small
	$(PYTHON) benchmarks/peers.py
	$(PYTHON) benchmarks/exactness.py
	$(PYTHON) benchmarks/lda_transform.py
	$(PYTHON) benchmarks/processes.py --only "4000 documents"

DIST_TOOLS := 'build>=1.2' 'twine>=6'

dist: setup
ifneq ($(UV),)
	$(UV) pip install --quiet --python $(PYTHON) $(DIST_TOOLS)
else
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(DIST_TOOLS)
endif
	rm -rf dist
	$(PYTHON) -m build --outdir dist
	$(PYTHON) -m twine check --strict dist/*
	$(PYTHON) tests/wheel.py dist

clean:
	rm -rf $(VENV) report site dist
