# Everything sets itself up: a virtual environment in .venv, from the locks.
#   make convert INPUT=photos/ OUTPUT=out/ ARGS="--image_format jpeg"
#   make test

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
RUN = $(VENV)/bin/python
UV = $(VENV)/bin/uv
INSTALL = $(UV) pip install --quiet --system-certs --python $(RUN)
COMPILE = $(UV) pip compile --system-certs --generate-hashes --no-header --no-annotate --upgrade
# Programs that are compared in environments of their own.
PEERS = tensorflow img2dataset
LOCKS = requirements.lock requirements-dev.lock requirements-uv.lock deploy/requirements.lock deploy/vertex/requirements.lock \
	$(PEERS:%=benchmarks/peers/%.lock)
PACKAGES = recordmill pipelines transforms benchmarks deploy docs
DOCKERFILES = deploy/Dockerfile deploy/vertex/Dockerfile
# Stamps: what conversions need is installed; what development, tests and reading back need is installed too.
RUNS = $(VENV)/runs
DEVELOPS = $(VENV)/develops
# The package by its name: type checkers do not follow setup.py's package_dir, and a folder called recordmill in
# the working directory, as this checkout may be, hides what is not found on Python's path.
NAMES = build/names/recordmill

SAMPLE = build/sample
SAMPLE_RECORDS = build/sample-records
ARGS ?=
TESTS ?=
# Of pytest; by default two, and three for all tests, many of which wait for other processes.
WORKERS ?=
# Each worker imports every test. That takes half the time if the last run has left them compiled.
PYTEST = PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest --dist worksteal -n

# Of the targets for Google Cloud, which deploy/README.md explains.
REPOSITORY ?= recordmill
TAG ?= $(shell git describe --always --dirty 2>/dev/null || echo unversioned)
IMAGE ?= $(if $(REGION),$(if $(PROJECT),$(REGION)-docker.pkg.dev/$(PROJECT)/$(REPOSITORY)/recordmill:$(TAG)))
TEMPLATE ?= $(if $(BUCKET),gs://$(BUCKET)/templates/recordmill.json)
missing = $(strip $(foreach name,$(1),$(if $($(name)),,$(name)=…)))
need = $(if $(call missing,$(1)),@echo "make $@: give also $(call missing,$(1))" >&2; exit 2)

.PHONY: setup convert test test-all figures fuzz benchmark lint audit sbom format docs reference lock digests image template launch clean

setup: $(DEVELOPS)

$(UV): requirements-uv.lock
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 to 3.13 found; name one with PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-uv.lock

$(RUNS): requirements.lock setup.py recordmill/__init__.py | $(UV) $(NAMES)
	$(INSTALL) --compile-bytecode --require-hashes --build-constraint requirements-dev.lock --requirement requirements.lock
	$(INSTALL) --no-deps --build-constraint requirements-dev.lock --editable .
	@echo "$(CURDIR)/build/names" > "$$($(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/recordmill.pth"
	@$(RUN) -m compileall -q recordmill pipelines transforms
	@touch $(RUNS)

$(DEVELOPS): requirements-dev.lock $(RUNS)
	$(INSTALL) --compile-bytecode --require-hashes --build-constraint requirements-dev.lock --requirement requirements-dev.lock
	@touch $(DEVELOPS)

$(NAMES):
	@mkdir -p $(NAMES)
	@ln -sfn $(addprefix ../../../,$(wildcard recordmill/*.*) pipelines transforms) $(NAMES)

# Without INPUT, a small sample is drawn and converted.
convert: $(RUNS)
ifeq ($(INPUT),)
	@$(RUN) -m benchmarks.drawings $(SAMPLE)
	@$(RUN) -m recordmill convert --input $(SAMPLE) --output "$(or $(OUTPUT),$(SAMPLE_RECORDS))" $(if $(OUTPUT),,--overwrite) $(ARGS)
else ifeq ($(OUTPUT),)
	@echo "make: INPUT is $(INPUT), and OUTPUT is not given; name a new or empty folder with OUTPUT=…" >&2; exit 2
else
	@$(RUN) -m recordmill convert --input "$(INPUT)" --output "$(OUTPUT)" $(ARGS)
endif

test: $(DEVELOPS)
	$(PYTEST) $(or $(WORKERS),2) $(TESTS)

# All tests, with those that take long and those that need Java or Go. Lists what is skipped.
test-all: $(DEVELOPS)
	$(PYTEST) $(or $(WORKERS),3) -m '' -rfEs $(TESTS)

# Runs the tests of docs/promises.md, and writes their figures into it.
figures: $(DEVELOPS)
	$(RUN) -m docs.figures

# Damages images, inputs and files of our own, and reports what goes wrong. FUZZERS are some of images, parsers,
# own_files and conversions, with commas.
fuzz: $(DEVELOPS)
	TF_CPP_MIN_LOG_LEVEL=3 $(RUN) -m tests.fuzz --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) \
		$(if $(FUZZERS),--fuzzers $(FUZZERS)) $(ARGS)

# Compares with other programs, and writes docs/performance.md. They are installed below build/peers. With the
# default sizes it takes over an hour; ARGS="--images 100 --small 2000 --rows 20000 --repeats 1" a quarter of an hour.
benchmark: $(DEVELOPS) $(PEERS:%=build/peers/%/installed)
	PYTHONDONTWRITEBYTECODE= $(RUN) -m benchmarks.compare --readers $(ARGS)

build/peers/%/installed: benchmarks/peers/%.lock | $(UV)
	$(PYTHON) -m venv --clear $(@D)
	$(UV) pip install --quiet --system-certs --python $(@D)/bin/python --compile-bytecode --require-hashes --build-constraint requirements-dev.lock --requirement $<
	@touch $@

lint: $(DEVELOPS)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m bandit --severity-level medium --quiet --recursive setup.py $(PACKAGES)

# Known vulnerabilities of all that the locks install. Asks the vulnerability service of PyPI, and fails if that does
# not answer.
audit: $(DEVELOPS)
	for lock in $(LOCKS); do $(RUN) -m pip_audit --strict --require-hashes --disable-pip --requirement $$lock || exit 1; done

# What a conversion and the image install, as CycloneDX: build/sbom.json and build/sbom-image.json.
sbom: $(DEVELOPS)
	@mkdir -p build
	$(RUN) -m cyclonedx_py requirements requirements.lock --output-reproducible --output-file build/sbom.json
	$(RUN) -m cyclonedx_py requirements deploy/requirements.lock --output-reproducible --output-file build/sbom-image.json

format: $(DEVELOPS)
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

# The documents as a site, build/site/index.html. Nothing in it is loaded from a network.
docs: $(DEVELOPS)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict
	@echo "build/site/index.html"

# The pages and tables that are generated from the code.
reference: $(DEVELOPS)
	$(RUN) -m docs.generate

# The locks: uv, what develops, what runs, for all supported versions of Python on Linux and macOS; the images.
lock: $(UV)
	echo uv | $(COMPILE) --universal --python-version 3.10 --output-file requirements-uv.lock -
	$(COMPILE) --universal --python-version 3.10 --extra tensorflow --extra dev --output-file requirements-dev.lock setup.py
	$(COMPILE) --universal --python-version 3.10 --constraint requirements-dev.lock --output-file requirements.lock setup.py
	$(COMPILE) --python-version 3.11 --python-platform linux --extra gcp --constraint requirements-dev.lock \
		--output-file deploy/requirements.lock setup.py
	$(COMPILE) --python-version 3.11 --python-platform linux --constraint requirements-dev.lock \
		--output-file deploy/vertex/requirements.lock deploy/vertex/requirements.txt
	for peer in $(PEERS); do $(COMPILE) --universal --python-version 3.10 \
		--output-file benchmarks/peers/$$peer.lock benchmarks/peers/$$peer.txt || exit 1; done

# Adds the digest of each base image to the Dockerfiles, as docker reads it from its registry.
digests:
	@for image in $$(sed -n 's/^ARG [A-Z]*_IMAGE=\([^@]*\).*/\1/p' $(DOCKERFILES) | sort -u); do \
		digest=$$(docker buildx imagetools inspect "$$image" --format '{{.Manifest.Digest}}') || exit 1; \
		sed -i.before "s|^\(ARG [A-Z]*_IMAGE=$$image\).*|\1@$$digest|" $(DOCKERFILES) || exit 1; \
	done
	@rm -f $(addsuffix .before,$(DOCKERFILES))

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
