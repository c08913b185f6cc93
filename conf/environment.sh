# Sourced by spark-submit.sh and run-tests.sh: checks Python and Java, and creates the virtual environment.
# Rule: every error message says what was found, what was expected and what to do. Works with bash 3.2 (macOS).
# Expects $here, the directory of the checkout.

# the virtual environment; `run-tests.sh --spark` names another one
venv="$here/.venv"

say() { echo "flinkish: $*" >&2; }

die() {
    say "$*"
    exit 1
}

# is_at_least_3_10 <version>
is_at_least_3_10() {
    local major="${1%%.*}" rest="${1#*.}"
    local minor="${rest%%.*}"
    [ "$major" -gt 3 ] 2>/dev/null || { [ "$major" -eq 3 ] && [ "$minor" -ge 10 ]; } 2>/dev/null
}

# check_python <python>: exits unless it is Python 3.10 or later
check_python() {
    local advice="install Python 3.10 or later, or name one: FLINKISH_PYTHON=/path/to/python3.12 $0 ..."
    command -v "$1" >/dev/null 2>&1 || die "no Python: '$1' is not a command; expected Python 3.10 or later; $advice"
    local version
    version="$("$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)" ||
        die "'$1' ($(command -v "$1")) does not run; expected Python 3.10 or later; $advice"
    is_at_least_3_10 "$version" ||
        die "Python is too old: found $version ($(command -v "$1")), expected 3.10 or later; $advice"
}

# check_java: exits unless the Java that Spark will start is version 17 or later
check_java() {
    local java="java"
    local advice="install a JDK or JRE 17 or later, or point JAVA_HOME at one"
    if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; fi
    command -v "$java" >/dev/null 2>&1 || die "no Java: '$java' is not a command; expected Java 17 or later; $advice"
    local version major
    # not simply the first line, because JAVA_TOOL_OPTIONS prints a line before it; "1.8.0_392" is Java 8
    version="$("$java" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)"
    major="${version#1.}"
    major="${major%%[!0-9]*}"
    [ -n "$major" ] || die "'$java -version' names no version; expected Java 17 or later; $advice"
    [ "$major" -ge 17 ] ||
        die "Java is too old: found $version ($(command -v "$java")), expected 17 or later; $advice"
}

# venv_key: prints a key that changes whenever the virtual environment must be updated
venv_key() { { echo "$here"; cat "$here/setup.cfg" "$here/pyproject.toml"; } | cksum | tr ' ' '-'; }

# venv_has <extras>: true if $venv is complete for these extras and the current venv_key
venv_has() {
    [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.flinkish-$1" 2>/dev/null)" = "$(venv_key)" ]
}

# make_venv <python> <extras>: creates $venv with flinkish[extras], editable; returns at once if it is complete. With -I,
# or else -m imports modules of the current directory
make_venv() {
    if venv_has "$2"; then return; fi
    if ! "$venv/bin/python" -I -m pip --version >/dev/null 2>&1; then
        "$1" -I -m venv --clear "$venv" >&2 ||
            die "cannot make a virtual environment in $venv (see above); on Debian and Ubuntu: apt install python3-venv"
    fi
    say "installing flinkish[$2] and what it needs into ${venv##*/} (only the first time; about 600 MB)"
    DIST_EXTRA_CONFIG="$here/conf/wheels.cfg" \
        "$venv/bin/python" -I -m pip install --quiet --disable-pip-version-check --editable "$here[$2]" >&2 ||
        die "pip could not install flinkish[$2] into $venv (see above); mend the cause and start again"
    # where PYTHONDONTWRITEBYTECODE is set, as in many containers, each of a job's processes would compile it again
    "$venv/bin/python" -I -m compileall -q "$here/flinkish" || say "flinkish is not compiled: every start takes longer"
    # written last, so that an interrupted installation is resumed
    venv_key >"$venv/.flinkish-$2"
}
