#!/bin/sh
# What 'make check' adds to the tests; runs in the control environment. Every check runs, the first failure counts.
failed=0
step() {
    echo "== $*"
    "$@" || failed=1
}
step ruff format --check .
step ruff check .
step mypy proto shared services infra/local tests bench
step lint-imports
step python -m sub100_bootstrap.lock --check
exit $failed
