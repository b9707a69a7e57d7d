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
# Most tests wait for other processes: more of them than cores run side by side.
WORKERS ?= 3

# Of the targets for Google Cloud, which deploy/README.md explains.
REPOSITORY ?= recordmill
TAG ?= $(shell git describe --always --dirty 2>/dev/null || echo unversioned)
IMAGE ?= $(if $(REGION),$(if $(PROJECT),$(REGION)-docker.pkg.dev/$(PROJECT)/$(REPOSITORY)/recordmill:$(TAG)))
TEMPLATE ?= $(if $(BUCKET),gs://$(BUCKET)/templates/recordmill.json)
missing = $(strip $(foreach name,$(1),$(if $($(name)),,$(name)=…)))
need = $(if $(call missing,$(1)),@echo "make $@: give also $(call missing,$(1))" >&2; exit 2)

.PHONY: setup convert test lint format lock image template launch clean

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
	@$(RUN) -m benchmarks.drawings $(SAMPLE)
	@$(RUN) -m pipelines.convert --input $(SAMPLE) --output "$(or $(OUTPUT),$(SAMPLE_RECORDS))" $(if $(OUTPUT),,--overwrite) $(ARGS)
else ifeq ($(OUTPUT),)
	@echo "make: INPUT is $(INPUT), and OUTPUT is not given; name a new or empty folder with OUTPUT=…" >&2; exit 2
else
	@$(RUN) -m pipelines.convert --input "$(INPUT)" --output "$(OUTPUT)" $(ARGS)
endif

test: $(READY)
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

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
	$(VENV)/bin/uv pip compile setup.py --python-version 3.11 --python-platform linux --extra gcp \
		--constraint requirements.lock --no-header --no-annotate --upgrade --output-file deploy/requirements.lock

# The image of deploy/Dockerfile, built by Cloud Build and pushed. BUILD_ARGS are more flags of gcloud.
image:
	$(call need,PROJECT REGION)
	gcloud builds submit . --project "$(PROJECT)" --region "$(REGION)" --config deploy/cloudbuild.yaml \
		--substitutions "_IMAGE=$(IMAGE)" $(BUILD_ARGS)

# The image, and the Flex Template that starts it.
template:
	$(call need,PROJECT REGION BUCKET)
	$(MAKE) image
	gcloud dataflow flex-template build "$(TEMPLATE)" --project "$(PROJECT)" --image "$(IMAGE)" \
		--sdk-language PYTHON --metadata-file deploy/metadata.json

# A job of the template. PARAMETERS are more parameters of it, with ~ between them, since values have commas:
# PARAMETERS='image_format=jpeg~splits=train=0.9,val=0.1'; ARGS are more flags of gcloud. Workers get the
# template's own image.
launch:
	$(call need,PROJECT REGION BUCKET NAME INPUT OUTPUT)
	@spec=$$(gcloud storage cat "$(TEMPLATE)" --project "$(PROJECT)") && \
	image=$$(printf '%s' "$${spec}" | $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["image"])') && \
	gcloud dataflow flex-template run "$(NAME)" --project "$(PROJECT)" --region "$(REGION)" \
		--template-file-gcs-location "$(TEMPLATE)" \
		--staging-location "gs://$(BUCKET)/staging" --temp-location "gs://$(BUCKET)/temp" \
		--parameters "^~^input=$${INPUT}~output=$${OUTPUT}~sdk_container_image=$${image}$${PARAMETERS:+~$${PARAMETERS}}" $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info
