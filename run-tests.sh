#!/usr/bin/env bash
# All checks from nothing: makes .venv, then ruff, mypy and pytest. Goes on after a failure and fails at the end.
#   ./run-tests.sh [--unit | --slow] [pytest options]
#     --unit: only the tests that need no Spark; --slow: only those that take minutes and are left out otherwise
set -eu

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
cd "$here"
. "$here/conf/environment.sh"

tests=()
if [ "${1:-}" = --unit ]; then
    tests=(tests/unit)
    shift
elif [ "${1:-}" = --slow ]; then
    tests=(-m slow)
    shift
fi

python="${FLINKISH_PYTHON:-python3}"
if ! venv_has test; then check_python "$python"; fi
check_java
make_venv "$python" test
python="$venv/bin/python"
# Spark starts its workers by this name; without it they are the python3 of the PATH
export PYSPARK_PYTHON="$python" PYSPARK_DRIVER_PYTHON="$python"

# what all JVMs of the tests map takes a minute to make, once per machine: meanwhile the checks run, which use one core
if [ "${tests[*]:-}" != tests/unit ]; then
    PYTHONPATH="$here" "$python" -m tests.support.class_archive >/dev/null 2>&1 &
fi

failed=""
check() {
    echo "== $*"
    "$python" -m "$@" || failed="$failed '$*'"
}
check ruff check .
check ruff format --check .
check mypy --strict flinkish

if [ -n "$failed" ]; then echo "== FAILED before the tests:$failed"; fi
echo "== pytest"
# the last command: pytest's summary is the last line of the output
code=0
# two processes: each test waits much of its time for a driver, a server or a worker. By files, because the tests of some
# share a port or a fixture. The slowest ones are told at the end, so that somebody sees it when the suite grows
"$python" -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=10 ${tests[@]+"${tests[@]}"} "$@" || code=$?
if [ "$code" -eq 0 ] && [ -n "$failed" ]; then code=1; fi
exit "$code"
