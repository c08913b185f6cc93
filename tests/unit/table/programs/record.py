"""Records what PyFlink prints for the programs of this folder; run by hand with a Python that has apache-flink::

python tests/unit/table/programs/record.py [NAME ...]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import traceback
from pathlib import Path

FOLDER = Path(__file__).parent
PRINTED = FOLDER / "printed.json"
_MARK = "#### program "


def programs() -> list[str]:
    """The names of the programs."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "record"))


def run(names: list[str]) -> None:
    """Runs programs one after the other in this process, and prints a mark before each."""
    for name in names:
        print(f"\n{_MARK}{name}", flush=True)
        text = re.sub(r"\bflinkish\b", "pyflink", (FOLDER / f"{name}.py").read_text())
        try:
            exec(compile(text, name, "exec"), {"__name__": "__main__"})
        except Exception:
            traceback.print_exc()
            print("FAILED", flush=True)
        sys.stdout.flush()
    print(f"\n{_MARK}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2:])
        return
    names = sys.argv[1:] or programs()
    done = subprocess.run([sys.executable, __file__, "--run", *names], stdout=subprocess.PIPE, text=True, check=True)
    printed = json.loads(PRINTED.read_text()) if PRINTED.exists() else {}
    for part in done.stdout.split(_MARK)[1:-1]:
        name, *lines = part.splitlines()
        kept = sorted(line for line in lines if line and not line.startswith(("WARNING", "SLF4J")))
        if "FAILED" in kept:
            print(f"{name} has failed")
        else:
            printed[name] = kept
    PRINTED.write_text(json.dumps(printed, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
