# The targets people use; `make install` is called by the others and quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Much of the suite waits for processes and clocks, so a few at a time use the cores better.
TEST_PROCESSES ?= 2

.PHONY: install develop demo test clients bench bench-full lint format lock

install: $(STAMP)

develop: $(STAMP)-dev

$(STAMP): requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

$(STAMP)-dev: requirements-dev.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

demo: install
	$(BIN)/python manage.py demo

lint: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run

test: lint
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile

clients: install
	$(BIN)/python -m tests.clients.run

bench: install
	$(BIN)/python -m tests.benchmarks.relay --quick

bench-full: install
	$(BIN)/python -m tests.benchmarks.relay

format: develop
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: develop
	$(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --universal requirements.in -o requirements.txt
	$(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --universal -c requirements.txt requirements-dev.in -o requirements-dev.txt
