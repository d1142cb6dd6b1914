"""Runs the blocks of one page in order, in this folder: `python transcript.py page.md`.

Blocks of Python run one after the other in this process, as do lines that begin with gigagp; scripts that start
processes of their own (`if __name__ == "__main__"`) and other commands get one to themselves.
"""

import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

from typer.testing import CliRunner

from gigagp.cli import app

RUN = {"python", "sh"}
NOT_RUN = {"text", "console"}  # their first line says why
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.S | re.M)


def blocks(page):
    """Language and text of every block."""
    return BLOCK.findall(page.read_text())


def run_python(code, number):
    script = Path(f"block{number}.py")
    script.write_text(code)
    if "__main__" in code:
        subprocess.run([sys.executable, "-W", "error", str(script)], check=True)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(script), run_name="__main__")


def run_shell(lines):
    for line in lines.replace("\\\n", " ").splitlines():
        first, _, rest = line.partition(" ")
        if first == "gigagp" and not re.search(r"[|<>;&]", rest):
            result = CliRunner().invoke(app, rest.partition(" #")[0])
            assert result.exit_code == 0, f"{line}\n{result.stderr}"
        elif line.strip():
            subprocess.run(["sh", "-ec", line], check=True)


def main(page):
    for number, (language, text) in enumerate(blocks(page)):
        print(f"-- block {number} ({language})", flush=True)
        if language == "python":
            run_python(text, number)
        elif language == "sh":
            run_shell(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
