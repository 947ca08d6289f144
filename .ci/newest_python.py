"""Print the newest Python of this machine that can make an environment; which one it is goes to stderr.

Looked at are python3.N of every folder on PATH, what pyenv has installed, and the Python that runs this.
"""

import os
import subprocess
import sys
from pathlib import Path

ASK = (
    "import ensurepip, sys, sysconfig, venv; "
    "print(*sys.version_info, sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sys.executable)"
)


def usable(path: Path) -> tuple[tuple[int, ...], str] | None:
    """Return the version of an interpreter and where it is; None if it is no release that can make an environment."""
    try:
        asked = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    *version, level, _, is_free_threaded, place = asked.stdout.strip().split(" ", 6)
    return None if level != "final" or is_free_threaded == "1" else (tuple(map(int, version)), place)


def main() -> None:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    paths = [Path(sys.executable)]
    for minor in range(11, 40):
        paths += [folder / f"python3.{minor}" for folder in folders]
        paths += pyenv.glob(f"versions/3.{minor}.*/bin/python3")
    found = dict(one for path in paths if path.exists() and (one := usable(path)))
    if not found:
        sys.exit("error: no Python here can make an environment: venv or ensurepip is missing")
    newest = max(found)
    name = ".".join(map(str, newest))
    alone = "" if len({version[:2] for version in found}) > 1 else "; there is no other: the suite runs on it, too"
    print(f"The newest Python on this machine is {name}{alone}.", file=sys.stderr)
    print(found[newest])


if __name__ == "__main__":
    main()
