# Everything sets itself up: a virtual environment in .venv, from the lock.
#   make convert INPUT=photos/ OUTPUT=out/ ARGS="--image_format jpeg"
#   make test

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
RUN = $(VENV)/bin/python
READY = $(VENV)/ready

SAMPLE = build/sample
SAMPLE_RECORDS = build/sample-records
ARGS ?=
TESTS ?=

.PHONY: setup convert test lint format lock clean

setup: $(READY)

$(READY): requirements.lock setup.py
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 to 3.13 found; name one with PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(READY)

# Without INPUT, a small sample is drawn and converted.
convert: $(READY)
ifeq ($(INPUT),)
	@rm -rf $(SAMPLE_RECORDS)
	@$(RUN) -m benchmarks.drawings $(SAMPLE)
	@$(RUN) -m pipelines.convert --input $(SAMPLE) --output "$(or $(OUTPUT),$(SAMPLE_RECORDS))" $(ARGS)
else ifeq ($(OUTPUT),)
	@echo "make: INPUT is $(INPUT), and OUTPUT is not given; name a new or empty folder with OUTPUT=…" >&2; exit 2
else
	@$(RUN) -m pipelines.convert --input "$(INPUT)" --output "$(OUTPUT)" $(ARGS)
endif

test: $(READY)
	$(RUN) -m pytest $(TESTS)

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(READY)
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

# One lock for all supported versions of Python, on Linux and macOS.
lock: $(READY)
	$(RUN) -m pip install --quiet uv
	$(VENV)/bin/uv pip compile setup.py --universal --python-version 3.10 --extra tensorflow --extra dev \
		--no-header --no-annotate --upgrade --output-file requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info
