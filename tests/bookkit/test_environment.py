"""What a bug report holds, and what it must not."""

import getpass
import platform
import subprocess
import sys
from pathlib import Path

import torch

from bookkit import environment


def printed() -> str:
    """As a reader gets it, in a fresh process."""
    command = [sys.executable, "-m", "bookkit.environment"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_check_prints_versions_platform_and_threads():
    lines = dict(line.split("  ", 1) for line in printed().splitlines())
    found = {name.strip(): value.strip() for name, value in lines.items()}
    assert found["python"].startswith(platform.python_version())
    assert found["torch"] == torch.__version__
    assert found["platform"] == f"{platform.system()} {platform.machine()}"
    assert int(found["torch threads"]) >= 1


def test_the_check_prints_no_path_host_or_user():
    text = printed()
    assert str(Path.home()) not in text
    assert not any(mark in text for mark in ("/", "\\"))
    words = text.replace("(", " ").replace(")", " ").split()
    assert platform.node() not in words
    assert getpass.getuser() not in words


def test_a_package_that_is_not_there_is_said_to_be_so():
    assert environment.installed("no-such-package-here") == "not installed"
