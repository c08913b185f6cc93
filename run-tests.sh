#!/usr/bin/env bash
# Runs all checks in a fresh checkout: creates .venv, then runs ruff and mypy beside pytest. Continues after a failure and
# exits with an error at the end.
#   ./run-tests.sh [--unit | --nightly | --slow | --platforms | --spark 4.0 | --spark 4.1] [pytest options]
#     --unit: only the tests without Spark; --nightly: only what the ordinary run leaves out because another test notices
#     the same (tests/NIGHTLY.md), and all properties with twenty times the examples; --slow: only the tests that take
#     minutes and are otherwise skipped;
#     --platforms: only the tests against HDFS, YARN and S3, whose servers are downloaded at first (1 GB);
#     --spark: with that Spark, in .venv-4.0 or .venv-4.1, only the tests of the engine, of exactness, of damage and of
#     trouble, those of a nightly run as well
set -eu

# without CDPATH, which makes cd go elsewhere, and print where it went
here="$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
cd "$here"
. "$here/conf/environment.sh"

tests=()
extras=test
if [ "${1:-}" = --unit ]; then
    tests=(tests/unit)
    shift
elif [ "${1:-}" = --nightly ]; then
    # Hypothesis' plugin marks properties; a property of many examples may take longer than a test that hangs does
    tests=(-m "(nightly or hypothesis) and not slow and not platforms" -o timeout=7200 -o faulthandler_timeout=7320)
    export HYPOTHESIS_PROFILE=nightly
    shift
elif [ "${1:-}" = --slow ]; then
    tests=(-m slow)
    shift
elif [ "${1:-}" = --platforms ]; then
    # in one process, so that its servers run once
    tests=(tests/platforms -m platforms -n 0)
    shift
elif [ "${1:-}" = --spark ]; then
    case "${2:-}" in
    4.0 | 4.1) ;;
    *) die "no tests for Spark '${2:-}'; expected --spark 4.0 or --spark 4.1; the ordinary run is for Spark 4.2" ;;
    esac
    venv="$here/.venv-$2"
    extras="connect,spark${2/./},test-tools"
    tests=(tests/integration/{engine,exactness,damage,trouble} -m "not slow and not platforms")
    shift 2
fi

python="${FLINKISH_PYTHON:-python3}"
if ! venv_has "$extras"; then check_python "$python"; fi
check_java
make_venv "$python" "$extras"
python="$venv/bin/python"
# Spark starts its workers with this Python; by default it uses the python3 on the PATH
export PYSPARK_PYTHON="$python" PYSPARK_DRIVER_PYTHON="$python"

# the tests start hundreds of Python processes, each of which would compile all modules again
unset PYTHONDONTWRITEBYTECODE

# the class archive that all JVMs of the tests map and the jars of Kafka and Flink take a minute to get, once per machine;
# a test that comes earlier waits for them
if [ "${tests[*]:-}" != tests/unit ]; then
    PYTHONPATH="$here" "$python" -m tests.support.prepare >/dev/null 2>&1 &
fi

# beside the tests, and told when they have ended: they take one core for a minute
check() {
    echo "== $*"
    if ! "$python" -m "$@"; then
        echo "== FAILED beside the tests: '$*'"
        return 1
    fi
}
checks() {
    local failed=0
    check ruff check . || failed=1
    check ruff format --check . || failed=1
    check mypy --strict flinkish tests/support || failed=1
    return "$failed"
}
if [ "$extras" = test ]; then
    told="$(mktemp)"
    checks >"$told" 2>&1 &
    checking=$!
fi

# in a fresh checkout each of the processes would compile all tests for itself
if [ ! -d tests/unit/__pycache__ ]; then "$python" -m pytest -q --collect-only >/dev/null 2>&1 || true; fi

echo "== pytest"
# pytest's summary is the last line of the output, unless something else has failed
code=0
# four processes on two cores, because tests spend half of their time waiting for a driver, a server or a worker. They are
# distributed by file, because the tests of some files share a port or a fixture, and tests/conftest.py puts the longest
# files first. The slowest tests are listed, to show when the suite grows. A test that takes its process with it is not
# run again: it would take the next one, too
"$python" -m pytest -n 4 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder --durations=10 ${tests[@]+"${tests[@]}"} "$@" || code=$?
if [ -n "${checking:-}" ]; then
    if ! wait "$checking"; then
        cat "$told"
        if [ "$code" -eq 0 ]; then code=1; fi
    fi
    rm -f "$told"
fi
exit "$code"
