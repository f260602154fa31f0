# Everything CI runs.
check:
    .ci/run

# All tests, or some: `just test gateway`, `just test --long`.
test *args:
    ./test {{args}}

# Instruction counts of each decision (docs/benchmarks.md).
instructions:
    cargo bench --package tollgate-core --bench instructions

fmt:
    cargo fmt --all
