#!/usr/bin/env bash
# Starts a job, also on a fresh machine (Python 3.10+, Java 17+). See --help.
set -eu

# without CDPATH, which makes cd go elsewhere, and print where it went
here="$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"

usage() {
    cat <<'TEXT'
usage: ./spark-submit.sh JOB.py [job options] [-- spark-submit options]

  ./spark-submit.sh jobs/click_count.py
  ./spark-submit.sh jobs/click_count.py --job-dir /shared/click-count -- --master spark://host:7077

Uses the python3 on the PATH if PySpark 4.0 or later, pandas, pyarrow and pyyaml are there, otherwise makes .venv in the
checkout.
Spark's log goes to .cache/spark.log; the console shows the job's own output, and errors.

environment:
  FLINKISH_PYTHON      the Python to use (default: python3)
  FLINKISH_CONF        the flinkish configuration (default: conf/flinkish.yaml)
  PYSPARK_PYTHON       the Python of a cluster's workers (default: that of the driver, by its path)
TEXT
}

case "${1:-}" in
"")
    usage >&2
    exit 2
    ;;
-h | --help)
    usage
    exit 0
    ;;
esac

. "$here/conf/environment.sh"

# prints yes if this Python has all packages (printed, because any program can return 0)
is_complete() {
    PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" "$1" - 2>/dev/null <<'PYTHON' || true
import sys
sys.path[:] = filter(None, sys.path)
from importlib.util import find_spec
from flinkish.launch.spark_version import spark_version
print("yes" if spark_version() and all(map(find_spec, ("pandas", "pyarrow", "yaml"))) else "no")
PYTHON
}

extras="jdbc,kafka,spark,yaml"
python="${FLINKISH_PYTHON:-python3}"
check_java
if [ "$(is_complete "$python")" != yes ]; then
    if ! venv_has "$extras"; then
        check_python "$python"
        make_venv "$python" "$extras"
        say "preparing this machine, so that jobs start faster (only the first time; half a minute)"
        FLINKISH_HOME="$here" "$venv/bin/flinkish" prepare >/dev/null || true
    fi
    python="$venv/bin/python"
fi

# exec all the way to the driver, so that it gets signals and the terminal directly, and its exit code is the script's
export FLINKISH_HOME="$here" PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
# not -m, which puts the current directory first on the path: it may hold another flinkish
exec "$python" -c '
import sys
sys.path[:] = filter(None, sys.path)
from flinkish.launch.__main__ import main
sys.exit(main(sys.argv[1:]))' "$@"
