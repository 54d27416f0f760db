"""What to put into a bug report: `python -m bookkit.environment`.

Versions, platform and threads. No path, host name or user name, so
that the lines can be pasted anywhere.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "attention-executed",
    "torch",
    "numpy",
    "jaxtyping",
    "tqdm",
    "matplotlib",
    "seaborn",
    "ipykernel",
    "nbclient",
    "jupyter-book",
)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")


def describe() -> dict[str, str]:
    """Name and value of each line, in order.

    A package that is not there has the value "not installed".
    """
    facts = {
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "where": "Colab" if in_colab() else "not Colab",
    }
    facts |= {name: installed(name) for name in PACKAGES}
    facts |= torch_facts()
    facts |= {name: os.environ[name] for name in THREADS if name in os.environ}
    return facts


def installed(package: str) -> str:
    """The version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def in_colab() -> bool:
    """Whether this runs in Google Colab."""
    try:
        return importlib.util.find_spec("google.colab") is not None
    except ModuleNotFoundError:
        return False


def torch_facts() -> dict[str, str]:
    """Threads and devices, as torch sees them."""
    try:
        import torch
    except ImportError:
        return {}
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "torch threads": str(torch.get_num_threads()),
        "torch CUDA": torch.version.cuda or "CPU build",
        "GPU": ", ".join(gpus) or "none",
    }


def main() -> None:
    """Print the facts in two columns."""
    facts = describe()
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
