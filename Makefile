# The one entrance. `make help` lists what there is; longer steps are scripts in tools/.
.DEFAULT_GOAL := help
SHELL := bash
BIN := .venv/bin
RUST := $(shell find broker/rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
PYTEST := $(BIN)/python -m pytest
# Processes that run quick tests; each test file runs in one of them.
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist loadfile

.PHONY: $(shell sed -n 's|^\([a-z0-9-]*\):.*## .*|\1|p' Makefile)

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: .venv/.built ## make .venv with penstock in it (the quick Cargo profile; nothing to do when nothing changed)

release: .venv/.release ## the same with the release profile, as in the wheels: for measurements

# Either profile serves `setup`; .release is there only when the module in place is of that profile.
.venv/.built: requirements.lock pyproject.toml $(RUST)
	@tools/setup.sh quick && rm -f .venv/.release && touch $@

.venv/.release: requirements.lock pyproject.toml $(RUST)
	@tools/setup.sh release && touch $@ .venv/.built

.venv/.dev: requirements.lock
	@tools/check_machine.sh && tools/make_venv.sh dev

run: setup ## start a broker on ./data
	@exec $(BIN)/penstock serve --data-dir ./data

run-cluster: setup ## start three brokers of one cluster, with their data in ./data-cluster (or CLUSTER_DIR)
	@exec $(BIN)/python tools/run_cluster.py $${CLUSTER_DIR:-./data-cluster}

demo: setup ## send a log file through a topic exchange to two queues
	@$(BIN)/python examples/demo.py

demo-pipeline: setup .venv/.spark ## run a pipeline on Spark: a stream into a stream and Parquet, and a picture of it
	@$(BIN)/python -m examples.demo_pipeline

build: .venv/.dev ## build the wheel into dist/
	$(BIN)/maturin build --release --out dist

wheels: .venv/.dev ## the wheels of broker and operator with all they need, into dist/
	@tools/build_wheels.sh dist

client-wheel: .venv/.dev ## the pure wheel of client and Spark connector, into dist/
	@tools/build_client.sh dist

chaos-spark: setup .venv/.spark ## 35 kills of Spark's drivers and workers and of the broker, in five kinds (SPARK_KILLS=7 each, SPARK_KILL_SEED), and checkpoints that go back or are copied
	SPARK_KILLS=$${SPARK_KILLS:-7} $(PYTEST) tests/spark/test_kills.py tests/spark/test_checkpoints.py -s

images: wheels ## the images penstock and penstock-operator, as archives in dist/images (docker, podman or buildah)
	@tools/build_images.sh dist/images

sbom: wheels ## what the images are made of, as CycloneDX, into dist/
	@tools/build_sbom.sh dist

audit: ## licences, sources and known vulnerabilities of the crates (installs cargo-deny; AUDIT_OFFLINE=1 leaves out the last)
	@tools/audit.sh

kind: images ## a kind cluster with a broker in it (needs kind, helm, kubectl and docker)
	@tools/kind.sh

e2e: setup .venv/.dev ## the scenarios on a real Kubernetes (E2E_PROVIDER=harness, kind or existing)
	@tools/e2e.sh

long-e2e: setup .venv/.dev ## the same, and a broker of an earlier commit below today's operator (E2E_PREVIOUS=commit)
	@E2E_PREVIOUS=$${E2E_PREVIOUS:-02eb4430} tools/e2e.sh

crds: .venv/.dev ## generate the kinds in charts/penstock-operator and their tables in docs from the types
	@PYTHONPATH=broker:operator $(BIN)/python tools/generate_operator_config.py
	@PYTHONPATH=broker:operator $(BIN)/python tools/generate_operator_arguments.py
	@PYTHONPATH=broker:operator $(BIN)/python -m penstock_operator.api.crds charts/penstock-operator/templates/crds
	@PYTHONPATH=broker:operator $(BIN)/python -m penstock_operator.api.document docs/kubernetes.md
	@$(BIN)/python tools/document_charts.py

charts-lint: .venv/.dev ## helm lint, and every values file rendered and checked (needs helm)
	@tools/lint_charts.sh

test: test-rust test-python ## all quick tests, Rust and Python

test-fast: setup .venv/.dev ## the tests that start no broker, and the rules about the code
	$(PYTEST) $(PARALLEL) tests/unit tests/property tests/house --quiet

test-rust: ## the crates' tests
	cargo test --workspace --features penstock-serve/fuzz --locked --quiet

test-python: setup .venv/.dev ## the quick Python tests but those of `lint` (WORKERS=2; VHOST_SHARDS=1 or 3, drawn)
	VHOST_SHARDS=$${VHOST_SHARDS:-$$(shuf -n 1 -e 1 3)} $(PYTEST) $(PARALLEL) tests --ignore tests/house --ignore tests/crash --ignore tests/conformance --ignore tests/spark --ignore tests/hostile --ignore tests/repro

test-spark: setup .venv/.spark ## the Spark connector, a shared session for each of two workers (needs Java 17; installs PySpark)
	$(PYTEST) $(PARALLEL) tests/spark tests/house/test_extras.py --timeout 500

.venv/.spark: .venv/.dev requirements-spark.lock
	@$(BIN)/pip install --quiet --requirement requirements-spark.lock && touch $@

test-security: setup .venv/.dev ## who gets in: every method with every kind of caller, tokens, TLS, first start; prints the table
	$(PYTEST) tests/security tests/broker/test_access.py tests/broker/test_tokens.py tests/broker/test_tls.py \
		tests/broker/test_rights.py tests/broker/test_topic_permissions.py tests/broker/test_first_start.py --capture=no --timeout 300

test-hostile: release .venv/.dev ## clients that lie, flood and say nothing, beside one that behaves; prints the table (HOSTILE_STRICT=1: its p99 counts)
	$(PYTEST) tests/hostile --capture=no --timeout 300

test-crash: setup .venv/.dev ## 100 kills under load, every crash of recorded runs and starts, every fault of the disk, bytes and files that are lost
	REPLAY_CASES=$${REPLAY_CASES:-12000} cargo test --locked --quiet -p penstock-log --test replay --test faults --test fault_sweep \
		--test corruption --test bad_sectors --test index_files --test gone_segments --test returned_segments --test lost_headers --test corrupt_backup --test backup --test reused_space --test interrupted_starts --test many_targets --test reread --test failed_sync --test cut_replay --test replicas --test copying
	cargo test --locked --quiet -p penstock-engine --test faulty_disk --test full_disk --test full_disk_starts --test producers --test producer_logs --test dedicated --test stream_corruption
	SIM_SEEDS=$${SIM_SEEDS:-2000} cargo test --release --locked --quiet -p penstock-replica --test simulation
	PROPTEST_CASES=$${PROPTEST_CASES:-100} cargo test --release --locked --quiet -p penstock-replication --test replicas
	$(PYTEST) tests/crash tests/unit/node/test_power_failures.py tests/unit/node/test_vhosts_storage.py tests/unit/storage/test_backup.py tests/unit/storage/test_restore_kills.py \
		tests/unit/vhost/test_owner.py tests/unit/vhost/test_owner_commits.py tests/unit/node/test_deletions.py \
		tests/broker/test_refused_starts.py -s --timeout 1200

test-repro: setup .venv/.dev .venv/.spark ## eight faults of earlier versions, three of them of Spark, tried again on a real broker (REPRO_COUNT=5, REPRO_SPARK_COUNT=3, REPRO_SEED)
	REPRO_COUNT=$${REPRO_COUNT:-5} REPRO_SPARK_COUNT=$${REPRO_SPARK_COUNT:-3} $(PYTEST) tests/repro -s --timeout 900

long-repro: setup .venv/.dev .venv/.spark ## all of them (some need Java 17; installs PySpark)
	$(PYTEST) tests/repro -s --timeout 900

test-conformance: setup .venv/.dev ## foreign clients: reflection, health, examples (need Go, Node and Maven), some cases of the own suites of AMQP's (CONFORMANCE_SEED)
	$(PYTEST) tests/conformance --timeout 600

long-conformance: setup .venv/.dev ## all cases of the own suites of AMQP's clients; prints the table
	CONFORMANCE_ALL=1 $(PYTEST) tests/conformance/test_clients.py --timeout 3600

sim: ## replicas of a shard in simulated worlds with faults (SEEDS=2000 or SIM_SEEDS, from SIM_FIRST)
	SIM_SEEDS=$${SEEDS:-$${SIM_SEEDS:-2000}} cargo test --release --locked --quiet -p penstock-replica --test simulation -- --nocapture

model: setup .venv/.dev ## the model of replication for about a minute, and without each of its rules in turn (MODEL_SEEDS=1000)
	REPLICATION_SEEDS=$${MODEL_SEEDS:-1000} $(PYTEST) tests/model -s

chaos: setup .venv/.dev ## faults for three real brokers of a cluster under load, and the verdict (CHAOS_MINUTES=10, CHAOS_SEED, CHAOS_KINDS=pause,halves, CHAOS_RATE, CHAOS_SHARDS=3)
	@PYTHONPATH=tests $(BIN)/python -m chaos

failover: setup .venv/.dev ## kill -9 each leader of three in turn while clients publish at full rate, and the verdict (FAILOVER_KILLS=6)
	@PYTHONPATH=tests $(BIN)/python -m chaos --kinds kill-leader --rate 0 --faults $${FAILOVER_KILLS:-6}

long-cluster: setup .venv/.dev ## replace brokers of an earlier commit under load, one after the other, and the verdict (CLUSTER_PREVIOUS=commit)
	@PYTHONPATH=tests $(BIN)/python -m chaos.rolling

long-model: ## the log against its model with many cases (LONG_CASES=20000); seeds that fail are kept beside the test
	PROPTEST_CASES=$${LONG_CASES:-20000} cargo test --release --locked -p penstock-log --test model

long-replication: setup .venv/.dev ## the model of replication from many seeds (REPLICATION_SEEDS=60000, from REPLICATION_SEED)
	REPLICATION_SEEDS=$${REPLICATION_SEEDS:-60000} $(PYTEST) $(PARALLEL) tests/model -s

long-replay: ## every crash of many recorded runs (REPLAY_CASES=1000000, from REPLAY_SEED=1)
	REPLAY_CASES=$${REPLAY_CASES:-1000000} cargo test --release --locked -p penstock-log --test replay -- --nocapture

long-miri: ## the ack set, the index and the records under Miri, which knows no maps (needs nightly Rust with miri)
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=$${PROPTEST_CASES:-4} cargo +nightly miri test --locked --target-dir target/miri -p penstock-queue --test ack_set_model
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=$${PROPTEST_CASES:-4} cargo +nightly miri test --locked --target-dir target/miri -p penstock-log --lib -- index:: record:: encode::

long-asan: ## the log's tests, maps and all, under AddressSanitizer (needs nightly Rust)
	RUSTFLAGS=-Zsanitizer=address cargo +nightly test --locked --target-dir target/asan --target $$(rustc -vV | sed -n 's/^host: //p') -p penstock-log --lib --tests

long-dead-letters: setup .venv/.dev ## 200 kills of a broker that dead-letters (DEAD_LETTER_KILLS=100 with one shard and with three, KILL_SEED)
	DEAD_LETTER_KILLS=$${DEAD_LETTER_KILLS:-100} $(PYTEST) tests/crash/test_kill_dead_letters.py -s --timeout 3600

long-oracle: setup .venv/.dev ## 100 random virtual hosts and histories over AMQP against a small oracle, with kills (ORACLE_RUNS=100, ORACLE_STEPS=200, ORACLE_SEED)
	ORACLE_RUNS=$${ORACLE_RUNS:-100} ORACLE_STEPS=$${ORACLE_STEPS:-200} $(PYTEST) tests/crash/test_oracle.py -s --timeout 3600

long-disk-use: ## measure what a slow queue among fast ones takes on the disk
	cargo test --release --locked -p penstock-engine --test disk_use -- --ignored --nocapture

long-deadlines: ## a million deadlines over a kill: the start's time and memory beside one without
	DEADLINES=$${DEADLINES:-1000000} cargo test --release --locked -p penstock-engine --test deadline_starts -- --nocapture

long-soak: release .venv/.dev ## an hour of mixed load (SOAK_MINUTES=60), every message checked; samples and graph in target/soak
	@PYTHONPATH=tests $(BIN)/python -m bench.soak --minutes $${SOAK_MINUTES:-60}

soak-docs: setup .venv/.dev ## draw docs/images/soak.svg from the last long-soak
	@PYTHONPATH=tests $(BIN)/python -m bench.soak --draw docs/images/soak.svg

long-faults: setup .venv/.dev ## put known faults back one at a time, and see that the tests find each (FAULTS=word: only those)
	$(BIN)/python -m tools.put_faults_back $(FAULTS)

long-fuzz: ## ten minutes of fuzzing a target (needs nightly Rust and cargo-fuzz)
	@tools/fuzz_all.sh 600

bench: release .venv/.dev ## the table of docs/benchmarks.md, measured here (BASE=COMMIT: and there, in turn; BENCH_FLAGS="--rows batched --runs 3")
	@PYTHONPATH=tests $(BIN)/python -m bench $(if $(BASE),--base $(BASE)) $(BENCH_FLAGS)

bench-streams: release .venv/.dev .venv/.spark ## the rows about streams (BACKLOG=1000000 for one of 1 GB); Spark's need Java 17
	@PYTHONPATH=tests $(BIN)/python -m bench --backlog $${BACKLOG:-10000000} \
		--rows stream-append stream-append-read stream-read stream-read-process stream-read-python stream-time \
		flight-read flight-read-all flight-put spark-read spark-count spark-groups spark-json \
		spark-micro-batch spark-delay spark-idle

bench-cluster: release .venv/.dev ## three brokers beside one, failovers, hand-overs and a blank replica (BENCH_FLAGS="--rows cluster-kill --faults 5")
	@PYTHONPATH=tests $(BIN)/python -m bench.clusters $(BENCH_FLAGS)

bench-docs: release .venv/.dev ## the same, written to docs/benchmarks.md
	@PYTHONPATH=tests $(BIN)/python -m bench --update-docs

fmt: .venv/.dev ## format everything
	cargo fmt --all
	$(BIN)/ruff format . && $(BIN)/ruff check --fix --select I --quiet .

lint: setup .venv/.dev ## every check that runs nothing
	@tools/lint.sh

proto: .venv/.dev ## generate broker/penstock/v1 from proto/
	$(BIN)/python tools/generate_protobuf.py

verbs: .venv/.dev ## generate the client's verbs for threads from those for asyncio
	$(BIN)/python tools/generate_client.py

lock: ## resolve pyproject.toml into requirements.lock anew
	@tools/write_lock.sh

clean: ## remove what was built (not ./data)
	rm -rf .venv target dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache broker/penstock/_core*.so
