"""Hosts of their own on one machine: network namespaces, each with an address and a link that can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

FORWARDING = "/proc/sys/net/ipv4/ip_forward"


def ip(*arguments):
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {ran.stderr.strip()}")


@contextmanager
def host(name, number):
    """A network namespace with an address, 10.213.number.2, and a link to here, 10.213.number.1."""
    with ExitStack() as undo:
        ip("netns", "add", name)
        undo.callback(ip, "netns", "del", name)
        ip("link", "add", f"{name}-here", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"10.213.{number}.1/24", "dev", f"{name}-here")
        ip("link", "set", f"{name}-here", "up")
        for command in (("addr", "add", f"10.213.{number}.2/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            ip("-n", name, *command)
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "route", "add", "default", "via", f"10.213.{number}.1")
        yield name


@contextmanager
def hosts_of(numbers):
    """The names of hosts, 10.213.number.2 each, which reach each other through this machine."""
    try:
        with open(FORWARDING) as file:
            forwarding = file.read()
        with ExitStack() as stack:
            hosts = [stack.enter_context(host(f"ggp{os.getpid() % 10_000}{i}", i)) for i in numbers]
            with open(FORWARDING, "w") as file:
                file.write("1")
            try:
                yield hosts
            finally:
                with open(FORWARDING, "w") as file:
                    file.write(forwarding)
    except (OSError, FileNotFoundError) as error:
        if "ip " in str(error) or isinstance(error, FileNotFoundError | PermissionError):
            pytest.skip(f"this machine lets us make no network namespaces: {error}")
        raise


def two_hosts():
    """10.213.11.2 and 10.213.12.2."""
    return hosts_of((11, 12))


@contextmanager
def knowing(host, addresses):
    """A host resolves these names."""
    folder = Path("/etc/netns") / host  # which `ip netns exec` lays over /etc
    folder.mkdir(parents=True)
    try:
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        yield
    finally:
        shutil.rmtree(folder)


def cut(name):
    """Nobody says goodbye, and packets vanish."""
    ip("link", "set", f"{name}-here", "down")
