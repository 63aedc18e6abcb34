"""The server process: uvicorn around the application."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import ssl
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from sealift.fleet.collector.app import Collector, application
from sealift.fleet.errors import FleetError, QuestionError, StoreDamagedError
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention, Store

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Address:
    host: str = "127.0.0.1"
    port: int = 4318  # OTLP over HTTP's
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None  # with it, clients must show a certificate that it signed

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def open_store(where: str, retention: Retention, threads: int | None = None, must_exist: bool = False) -> Store:
    """A folder, or clickhouse://user:password@host:port/database. `must_exist`: a folder without a store in it is an error."""
    if where.startswith(("clickhouse://", "clickhouses://")):
        from sealift.fleet.store.clickhouse import ClickHouseStore

        return ClickHouseStore.connect(where, retention)
    if "://" in where:
        raise QuestionError(f"store {without_password(where)}; help: a folder, or clickhouse://user:password@host:8123/database")
    folder = Path(where).expanduser()
    if must_exist and not (folder / "control.sqlite").exists():
        raise QuestionError(f"{folder} holds no store; help: the folder that `sealift fleet serve --store` was given")
    try:
        return EmbeddedStore(folder, retention, threads=threads)
    except OSError as error:
        if isinstance(error, FleetError):
            raise
        raise StoreDamagedError(f"{folder}: {error.strerror}; help: a folder that can be written to") from None


def without_password(where: str) -> str:
    """A store's address as it may be printed and logged."""
    parts = urllib.parse.urlsplit(where)
    if parts.password is None:
        return where
    return urllib.parse.urlunsplit(parts._replace(netloc=f"{parts.username or ''}@{parts.netloc.rpartition('@')[2]}"))


def serve(collector: Collector, address: Address, ready: Callable[[str], None]) -> None:
    """Until a signal ends it. `ready` is called with the URL once the port is open; port 0 takes any free one."""
    if not address.is_loopback and not collector.limits.write_tokens:
        collector.close()
        raise QuestionError(f"{address.host} is reachable from other machines; help: give --write-token and --read-token, or listen on 127.0.0.1")
    for path in (address.certificate, address.key, address.client_authority):
        if path is not None and not path.is_file():
            collector.close()
            raise QuestionError(f"{path}: no such file; help: --tls-certificate, --tls-key and --tls-client-authority name PEM files")
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(2048)  # who is told the address may connect at once
    except (OSError, OverflowError) as error:
        listener.close()
        collector.close()
        is_name = isinstance(error, socket.gaierror) or getattr(error, "errno", 0) == errno.EADDRNOTAVAIL
        text = getattr(error, "strerror", None) or "a port is a number from 0 to 65535"
        way_out = "an address of this machine for --host" if is_name else "another --port; 0 takes any that is free"
        raise FleetError(f"{address.host}:{address.port}: {text}; help: {way_out}", code="E-FLEET-004") from None
    config = uvicorn.Config(
        application(collector),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=2000,
        timeout_graceful_shutdown=10,
        **_tls(address),
    )
    server = uvicorn.Server(config)
    name = f"[{address.host}]" if ":" in address.host else address.host
    ready(f"{'https' if address.certificate else 'http'}://{name}:{listener.getsockname()[1]}")
    try:
        server.run(sockets=[listener])
    finally:
        listener.close()


def _tls(address: Address) -> dict[str, Any]:
    if address.certificate is None:
        return {}
    options: dict[str, Any] = {"ssl_certfile": str(address.certificate), "ssl_keyfile": str(address.key or address.certificate)}
    if address.client_authority:
        options |= {"ssl_ca_certs": str(address.client_authority), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options
