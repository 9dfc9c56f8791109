# The one entrance. `make help` lists what there is; longer steps are scripts in tools/.
.DEFAULT_GOAL := help
SHELL := bash
BIN := .venv/bin
RUST := $(shell find broker/rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup run demo build test test-rust test-python test-crash test-conformance long-model long-disk-use long-fuzz bench bench-streams bench-docs fmt lint proto lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: .venv/.built ## make .venv with penstock in it (quick when nothing changed)

.venv/.installed: requirements.lock
	@tools/check_machine.sh
	@tools/make_venv.sh && touch $@

.venv/.built: .venv/.installed pyproject.toml $(RUST)
	@tools/build_native.sh && touch $@

run: setup ## start a broker on ./data
	@exec $(BIN)/penstock serve --data-dir ./data

demo: setup ## send a log file through a topic exchange to two queues
	@$(BIN)/python examples/demo.py

build: setup ## build the wheel into dist/
	$(BIN)/maturin build --release --out dist

test: test-rust test-python ## all quick tests, Rust and Python

test-rust: ## the crates' tests
	cargo test --workspace --features penstock-serve/flight --locked --quiet

test-python: setup ## the quick Python tests
	$(PYTEST) tests --ignore tests/crash --ignore tests/conformance

test-crash: setup ## kill -9 under load, 20 rounds
	$(PYTEST) tests/crash --timeout 900

test-conformance: setup ## foreign clients: reflection, health, the Go example (needs Go)
	$(PYTEST) tests/conformance --timeout 600

long-model: ## the log against its model with many cases (LONG_CASES=20000); seeds that fail are kept beside the test
	PROPTEST_CASES=$${LONG_CASES:-20000} cargo test --release --locked -p penstock-log --test model

long-disk-use: ## measure what a slow queue among fast ones takes on the disk
	cargo test --release --locked -p penstock-engine --test disk_use -- --ignored --nocapture

long-fuzz: ## ten minutes of fuzzing a target (needs nightly Rust and cargo-fuzz)
	@tools/fuzz_all.sh 600

bench: setup ## the table of docs/benchmarks.md, measured here
	@PYTHONPATH=tests $(BIN)/python -m bench

bench-streams: setup ## the rows about streams (BACKLOG=1000000 for one of 1 GB)
	@PYTHONPATH=tests $(BIN)/python -m bench --backlog $${BACKLOG:-10000000} \
		--rows stream-append stream-read stream-read-python stream-time flight-read flight-read-all flight-put

bench-docs: setup ## the same, written to docs/benchmarks.md
	@PYTHONPATH=tests $(BIN)/python -m bench --update-docs

fmt: setup ## format everything
	cargo fmt --all
	$(BIN)/ruff format . && $(BIN)/ruff check --fix --select I --quiet .

lint: setup ## every check that runs nothing
	@tools/lint.sh

proto: .venv/.installed ## generate broker/penstock/v1 from proto/
	$(BIN)/python tools/generate_protobuf.py

lock: ## resolve pyproject.toml into requirements.lock anew
	@tools/write_lock.sh

clean: ## remove what was built (not ./data)
	rm -rf .venv target dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache broker/penstock/_core*.so
