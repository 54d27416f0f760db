"""What every test runs under: one thread, checked shapes, no network."""

from __future__ import annotations

import socket

import jaxtyping
import pytest
import torch

# Two spinning threads on a busy machine are slower than one.
torch.set_num_threads(1)

# The shapes in every signature are checked whenever it is called. The
# hook must stand before anything imports the package.
jaxtyping.install_import_hook(["transformer"], "beartype.beartype")


@pytest.fixture
def generator() -> torch.Generator:
    """Randomness for one test, the same in every run."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def unchecked_types():
    """Calls as users make them: our own checks are the only ones."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """A test that reaches for another machine fails, here and offline.

    Sockets of this machine stay: pytest-xdist, asyncio and notebook
    kernels use them.
    """
    local = ("127.0.0.1", "::1", "localhost")
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
    getaddrinfo = socket.getaddrinfo

    def refuse(host):
        raise RuntimeError(f"a test tried to reach {host!r}: tests have no network")

    def is_local(family, address):
        return family == socket.AF_UNIX or address[0] in local

    def guarded_connect(self, address):
        if not is_local(self.family, address):
            refuse(address)
        return connect(self, address)

    def guarded_connect_ex(self, address):
        if not is_local(self.family, address):
            refuse(address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host, *args, **kwargs):
        if host not in (None, "", *local):
            refuse(host)
        return getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
