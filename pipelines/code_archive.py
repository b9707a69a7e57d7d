"""The program itself, as an archive that workers install."""

from __future__ import annotations

import glob
import os
import subprocess
import sys

from recordmill.pipelines.job_errors import last_line
from recordmill.transforms.records import JobError


def pack(setup_file: str, folder: str) -> str:
    """Makes the source distribution of a checkout; its path.

    Beam makes one of its flag --setup_file, and prints what the first of its two ways has met; nor does this
    write into the checkout.

    Args:
        setup_file: path of setup.py.
        folder: where everything that is made goes.

    Raises:
        JobError: it cannot be made.
    """
    call = [
        sys.executable,
        "setup.py",
        "--quiet",
        "egg_info",
        "--egg-base",
        folder,
        "sdist",
        "--dist-dir",
        folder,
    ]
    done = subprocess.run(call, cwd=os.path.dirname(setup_file), capture_output=True, text=True)
    archives = glob.glob(os.path.join(glob.escape(folder), "*.tar.gz"))
    if done.returncode or not archives:
        raise JobError(
            f"{setup_file} makes no archive of this program for the workers ({last_line(done.stderr)}): pip "
            "install setuptools, or give --sdk_container_image, an image that holds the program"
        )
    return archives[0]
