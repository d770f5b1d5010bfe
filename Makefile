# Short names for the commands of README.md and CONTRIBUTING.md. Nothing needs make: each recipe can be typed.

GGUF ?= $(shell .venv/bin/cutaway pull smollm2)
PEERS ?= peers/bin/python
PEER_OPTIONS ?=
LOAD_OPTIONS ?=
MODELS ?= qwen2.5-coder-0.5b-instruct

.PHONY: run test check docs long clients fuzz schema load models fixtures peers parity

# Install, and ask a model something.
run:
	python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/cutaway run smollm2 "What is gravity?"

# Install for development, and run the tests. It wants the .venv that `run` made.
test:
	.venv/bin/pip install -e '.[test]' && .venv/bin/pytest -n 2

# Style and types; needs .venv/bin/pip install -e '.[dev]'.
check:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

# The pages that are made from the sources; a test fails where one is not current.
docs:
	.venv/bin/python docs/make_api.py && .venv/bin/python docs/make_files.py && \
	.venv/bin/python docs/make_models.py && .venv/bin/python docs/make_shapes.py

# The tests that take minutes, with all others.
long:
	CUTAWAY_LONG_TESTS=1 .venv/bin/pytest -n 2

# Other programs against the server, in an environment of their own (0.9 GB): LangChain, llm, lm-eval.
clients: clients/bin/python
	CUTAWAY_LONG_TESTS=1 CUTAWAY_CLIENTS_PYTHON=clients/bin/python .venv/bin/pytest tests/server/clients

clients/bin/python: tests/server/clients/requirements.txt
	python3 -m venv clients && clients/bin/pip install -r $< && touch $@

# A hundred thousand damaged model files of each format.
fuzz:
	CUTAWAY_FUZZ_EXAMPLES=100000 .venv/bin/pytest tests/formats/test_gguf_hostile.py tests/formats/test_safetensors.py

# Requests that are made of the server's own OpenAPI document, within its schemas and without.
schema:
	.venv/bin/pip install -e '.[test,schema]' && \
	CUTAWAY_LONG_TESTS=1 .venv/bin/pytest tests/server/test_openapi_document.py

# Models that only tests use, for the tests that are skipped without them (0.5 GB).
models:
	.venv/bin/python tests/oracles/fetch_models.py $(MODELS)

# A thousand connections to the server at once, of which some are cut; at the end nothing may be left.
load:
	.venv/bin/python benchmarks/server_load.py $(GGUF) $(LOAD_OPTIONS)

# What other implementations say about the same file; each script tells which packages PEERS needs.
fixtures:
	$(PEERS) tests/oracles/make_prompts.py $(GGUF)
	$(PEERS) tests/oracles/make_reference_fixture.py $(GGUF)
	$(PEERS) tests/oracles/make_hidden_fixture.py $(GGUF)
	$(PEERS) tests/oracles/make_llama_cpp_kl.py $(GGUF)

# Speed and memory beside other engines, round by round; benchmarks/peers/__init__.py tells which packages PEERS needs.
peers:
	.venv/bin/python benchmarks/peers.py $(GGUF) --peer-python $(PEERS) $(PEER_OPTIONS)

# Parity beside transformers, every family; PEERS needs torch, transformers and gguf.
parity:
	CUTAWAY_LONG_TESTS=1 CUTAWAY_PEERS_PYTHON=$(PEERS) .venv/bin/pytest tests/cli/test_parity_beside_transformers.py
