"""python -m megamoe VERB: the library's command line, which the package carries."""

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "megamoe"


def main() -> None:
    """Becomes the program; its exit status is this process's."""
    if not PROGRAM.exists():
        print(
            f"megamoe: {PROGRAM} is missing: this package was installed with a library built without "
            "its program (the target megamoe_cli)",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.stdout.flush()
    os.execv(PROGRAM, ["megamoe", *sys.argv[1:]])


if __name__ == "__main__":
    main()
