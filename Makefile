# Two commands: `make lab` opens the book, `make test` runs everything CI runs. Each target is a line or two that you
# can also type yourself; README.md gives the lines for people without make.
#
#   PYTHON=/path/to/python3.12   the Python that the environment is made with
#   LAB_FLAGS=--allow-root       more words for JupyterLab, such as --no-browser or --port=9999
#   WORKERS=4                    test processes at a time

VENV := .venv
BIN := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
PY := $(VENV)/$(BIN)/python
READER := $(VENV)/for-reading
AUTHOR := $(VENV)/for-authors
SITE := .venv-site
PUBLISHER := $(SITE)/for-the-site
QUIETLY := --quiet --disable-pip-version-check
CHAPTERS := $(sort $(wildcard book/[0-9][0-9]-*.ipynb))
WORKERS ?= 2

# The first Python found that will do; PYTHON=... on the command line takes its place.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
CANDIDATES := python3 python3.13 python3.12 python3.11 python
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(USABLE)' >/dev/null 2>&1 && { echo $$p; break; }; done)
NO_PYTHON = No usable Python: tinyllm needs version 3.11, 3.12 or 3.13 with the venv module, and \
$(if $(PYTHON),$(PYTHON) is none,there is none among $(CANDIDATES)). Install one (Debian, Ubuntu: python3 and \
python3-venv), or name it: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.12

.PHONY: help setup model lab test lint book site bench constraints
.DELETE_ON_ERROR:

help:  ## say what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 13

setup: $(AUTHOR)  ## make the environment in .venv, once

# Two files say what is installed: what reading takes, and on top of it what changing the course takes. Each is made
# again when a dependency changes; otherwise make only compares dates.
$(READER): pyproject.toml constraints.txt
	@$(PY) -c '' 2>/dev/null || $(or $(PYTHON),false) -c '$(USABLE)' 2>/dev/null || { echo '$(NO_PYTHON)'; exit 1; }
	@$(PY) -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing the book and its tests into $(VENV); the first time takes a minute or more"
	$(PY) -m pip install $(QUIETLY) -c constraints.txt -e '.[book,test]'
	@# The first screen is the book, not a question about news.
	@$(PY) -m jupyterlab.labextensions disable @jupyterlab/apputils-extension:announcements 2>/dev/null
	@touch $@

$(AUTHOR): $(READER)
	$(PY) -m pip install $(QUIETLY) -c constraints.txt -e '.[book,test,dev]'
	@touch $@

model: $(READER)  ## fetch the real model, once
	$(PY) -m tinyllm.zoo

lab: $(READER)  ## environment, model, and JupyterLab open on the first chapter
	@$(PY) -m tinyllm.zoo || echo "Going on without the model: the chapters that need it will say so."
	$(PY) -m jupyterlab --ServerApp.root_dir=. $(LAB_FLAGS) $(firstword $(CHAPTERS))

test: $(AUTHOR)  ## environment, model, and everything CI runs
	@$(PY) -m tinyllm.zoo || echo "Going on without the model: its tests are skipped, or fail where CI is set."
	@$(MAKE) --no-print-directory lint
	$(PY) book/pairing.py check
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not browser"
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --nbval book
	@$(MAKE) --no-print-directory site
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -m browser tests/browser

lint: $(AUTHOR)  ## ruff and mypy
	$(PY) -m ruff check
	$(PY) -m mypy

book: $(AUTHOR)  ## pair every notebook with its text and execute it
	$(PY) book/pairing.py run

# Jupyter Book 1 needs an older Sphinx than goes with the rest, so it has an environment of its own.
$(PUBLISHER): book/site/requirements.txt book/site/constraints.txt
	@$(or $(PYTHON),false) -c '$(USABLE)' 2>/dev/null || { echo '$(NO_PYTHON)'; exit 1; }
	@echo "Installing what writes the HTML book into $(SITE); the first time takes a minute"
	@$(PYTHON) -m venv --clear $(SITE)
	$(SITE)/$(BIN)/python -m pip install $(QUIETLY) -c book/site/constraints.txt -r book/site/requirements.txt
	@touch $@

site: $(PUBLISHER)  ## the book as HTML, in _build/html, from the notebooks as they are stored
	$(SITE)/$(BIN)/jupyter-book build . -q -n -W --keep-going

bench: $(READER)  ## every benchmark, one after the other
	@for script in $(sort $(wildcard bench/[a-z]*.py)); do echo "== $$script"; $(PY) $$script || exit 1; done

# One list for every Python and system it is tested to resolve on; markers say which line is for which.
PIN := $(PY) -m uv pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 --upgrade \
  --no-header --no-annotate --no-emit-index-url
constraints: $(AUTHOR)  ## write both constraints.txt anew, from the newest versions that go together
	$(PY) -m pip install --quiet uv
	$(PIN) --all-extras --output-file constraints.txt pyproject.toml
	$(PIN) --output-file book/site/constraints.txt book/site/requirements.txt
