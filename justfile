# Everything CI runs.
check:
    .ci/run

# All tests; `just test --long` adds what takes longer.
test *args:
    ./test {{args}}

fmt:
    cargo fmt --all
