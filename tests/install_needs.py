"""Install what some slow tests need: `python tests/install_needs.py`. What cannot be is one line, no error."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

ECOSYSTEM = ("mapie>=1,<2", "shap>=0.48,<1", "skpro>=2.9,<3")
TORCH = ("torch==2.13.0", "gpytorch>=1.15,<1.16")
S3 = ("moto[server]>=5.1,<6",)


def done(*words):
    """Whether the command succeeded; its output is only of interest to whoever runs it by hand."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0


def browser():
    if all(map(shutil.which, ("chromium", "chromedriver"))):
        return None
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return "only root can install it, with apt-get install chromium chromium-driver"
    install = ("apt-get", "install", "-y", "--no-install-recommends", "chromium", "chromium-driver")
    if done(*install) or (done("apt-get", "update") and done(*install)):
        return None
    return "apt-get install chromium chromium-driver failed"


def torch():
    if all(map(find_spec, ("torch", "gpytorch"))):
        return None
    if done(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *TORCH):
        return None
    return f"pip install {' '.join(TORCH)} failed"


def ecosystem():
    if all(map(find_spec, ("mapie", "shap", "skpro"))):
        return None
    if done(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *ECOSYSTEM):
        return None
    return f"pip install {' '.join(ECOSYSTEM)} failed"


def s3():
    if all(map(find_spec, ("moto", "flask"))):
        return None
    if done(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *S3):
        return None
    return f"pip install {' '.join(S3)} failed"


def main():
    needs = (("a browser", browser), ("torch", torch), ("MAPIE, SHAP or skpro", ecosystem), ("an S3 server", s3))
    for what, install in needs:
        failure = install()
        if failure is not None:
            print(f"tests that need {what} are skipped: {failure}")


if __name__ == "__main__":
    main()
