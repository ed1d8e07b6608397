# The two commands that matter are `make run` and `make test`; `make help` lists the others.

PROFILE_DIR := target/release
FUZZ_SECONDS ?= 15
FUZZ_TARGETS := lines exec synaps supex supr loaf peer acp mcp
# cargo-fuzz wants a nightly compiler's flags; this lets the stable one take them.
FUZZ := RUSTC_BOOTSTRAP=1 cargo fuzz

.PHONY: help run cluster page test setup check doc deny unit browser fuzz fuzz-provider soak mutants peers mcp clients bench profile profile-check profile-record scale page-bench screens picture dist dist-test release

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: page ## build parlor and start parlor serve: chat on http://127.0.0.1:18790/
	@test -x target/quick/parlor || echo "parlor: building it, which takes some minutes the first time"
	@if [ -t 2 ]; then cargo build --profile quick -p parlor; else cargo build --profile quick --quiet -p parlor; fi
	@target/quick/parlor serve

cluster: page ## start a PostgreSQL and three nodes that share it, on loopback and in a temporary folder, until Ctrl-C
	@if [ -t 2 ]; then cargo build --profile quick -p parlor; else cargo build --profile quick --quiet -p parlor; fi
	@scripts/cluster.sh target/quick/parlor

page: ## build the page, web/dist, which is a part of the program (needs npm)
	@scripts/build-page.sh

test: setup page check doc deny unit profile-check browser fuzz ## everything that must hold; what CI runs

setup: ## install what the tests need and the machine lacks
	@scripts/setup.sh

check:
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

deny:
	@scripts/deny.sh

unit: ## all tests, without the other checks
	cargo test --workspace --quiet

browser: ## the page in a browser, against the real server (installs chromium, once)
	cargo build --quiet -p parlor
	@scripts/page.sh "$(CURDIR)/target/debug/parlor"

fuzz: ## fuzz each decoder for FUZZ_SECONDS (15)
	@fuzz/seed.sh
	@for target in $(FUZZ_TARGETS); do \
	  echo "fuzz $$target for $(FUZZ_SECONDS) s"; \
	  $(FUZZ) run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -verbosity=0 -print_final_stats=1 \
	    2>fuzz/$$target.log || { cat fuzz/$$target.log; exit 1; }; \
	  grep number_of_executed_units fuzz/$$target.log; \
	done

fuzz-provider: ## fuzz the readers of models' answers for FUZZ_SECONDS (15); builds TLS with a sanitizer, which is long, once
	@fuzz/provider/seed.sh
	$(FUZZ) run --fuzz-dir fuzz/provider answers -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1

soak: ## the long proofs: 10,000 processes, 1 GiB to a slow reader, hundreds of kills of a busy engine and a busy Ruby
	PARLOR_SOAK=1 cargo test --release -p parlor --test limits --test synaps --test supex --test loaf --test supr --test sharing --test cluster -- --nocapture
	PARLOR_SOAK=1 cargo test --release -p parlor-log --test crash
	PARLOR_SOAK=1 cargo test --release -p parlor-engine --test crash
	PARLOR_SOAK=1 cargo test --release -p parlor-ruby --test storm

mutants: ## show that the checker of the cluster's soak finds faults of the log (root; some minutes)
	@scripts/mutants.sh

peers: ## install published programs (long, once) and test parlor with them: synaps and its tests, codex, the MCP package, clients of ACP
	@scripts/peers.sh
	cargo build --quiet -p parlor
	cargo test -p parlor --test peers -- --include-ignored --nocapture
	@tests/peers/rpc_e2e.sh target/debug/parlor
	@tests/supex/mcp/run.sh target/debug/parlor
	@tests/peers/acp/run.sh target/debug/parlor
	@tests/mcp/peers/run.sh target/debug/parlor

mcp: ## drive the supex door through the MCP package of PyPI (installs it, once)
	cargo build --quiet -p parlor
	@tests/supex/mcp/run.sh target/debug/parlor

clients: ## talk to the supr door with `websockets` (PyPI), `ws` (npm) and a browser, compare its API with openapi.json (installs them, once)
	cargo build --quiet -p parlor
	@tests/clients/run.sh target/debug/parlor

bench: ## measure beside the peers and the limit; writes bench/RESULTS.md
	@scripts/peers.sh
	cargo build --release --quiet -p parlor -p parlor-bench
	@$(PROFILE_DIR)/parlor-bench $(PROFILE_DIR)/parlor target/peers/bin bench/RESULTS.md

profile: ## count instructions in fixed scenarios with valgrind; writes bench/PROFILE.md
	@scripts/setup.sh
	cargo build --profile quick --quiet -p parlor -p parlor-bench
	@VALGRIND="$$(scripts/valgrind.sh)" target/quick/parlor-bench profile target/quick/parlor bench/PROFILE.md

profile-check: ## compare three of these counts, of the unoptimised program, with bench/profile-check.txt
	cargo build --quiet -p parlor -p parlor-bench
	@if valgrind=$$(scripts/valgrind.sh); then \
	  VALGRIND=$$valgrind target/debug/parlor-bench profile-check target/debug/parlor bench/profile-check.txt; \
	else echo "profile-check: instructions are NOT counted: no valgrind from 3.22 on can be had"; fi

profile-record: ## store these three counts
	cargo build --quiet -p parlor -p parlor-bench
	@VALGRIND="$$(scripts/valgrind.sh)" target/debug/parlor-bench profile-record target/debug/parlor bench/profile-check.txt

scale: ## measure what an event and a node cost the database, and write the model of many nodes: bench/scale.md and its plot
	cargo build --release --quiet -p parlor-bench
	@$(PROFILE_DIR)/parlor-bench scale bench/scale.md

page-bench: page ## frame times while 10,000 messages are scrolled through
	cargo build --release --quiet -p parlor
	cd tests/page && PARLOR_BINARY="$(CURDIR)/$(PROFILE_DIR)/parlor" node scroll.bench.mjs

screens: page ## a picture of every screen of the page, in target/screens
	cargo build --quiet -p parlor
	cd tests/page && PARLOR_BINARY="$(CURDIR)/target/debug/parlor" node screens.mjs "$(CURDIR)/target/screens"

picture: ## the picture of a terminal in the README, docs/pictures/terminal.svg, from the program itself
	cargo build --quiet -p parlor
	@scripts/picture.py target/debug/parlor docs/pictures/terminal.svg

dist: ## everything that is shipped, in target/dist/packages: a static program, an archive, packages for Debian, npm and pip, an SBOM
	@scripts/dist.sh

dist-test: ## try the packages in an empty root and in a fresh Debian (needs root)
	@scripts/dist-test.sh

release: ## check that the tree can be released, build and try the packages, tag the commit
	@scripts/release.sh
