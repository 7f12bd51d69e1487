"""TLS for the gateway's own gRPC server, from PEM files that may be renewed while it runs."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import grpc

logger = logging.getLogger(__name__)
_NO_PASSWORD = b""  # an encrypted key is refused instead of asking on a terminal


class TlsError(Exception):
    """The certificate or the key cannot be used; says which file and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate chain, leaf first, and its private key."""

    certificate: str
    key: str

    def check(self) -> None:
        """Both can be read and belong together; raises TlsError."""
        for path in (self.certificate, self.key):
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise TlsError(f"cannot read {path}: {error.strerror}") from error
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.certificate, self.key, password=_NO_PASSWORD
            )
        except ssl.SSLError as error:
            raise TlsError(
                f"{self.certificate} and {self.key} are no PEM certificate with its unencrypted "
                f"key: {error.reason or error}"
            ) from error

    def load(self) -> grpc.ServerCertificateConfiguration:
        """Raises TlsError."""
        self.check()
        with open(self.certificate, "rb") as certificate, open(self.key, "rb") as key:
            return grpc.ssl_server_certificate_configuration([(key.read(), certificate.read())])

    def version(self) -> tuple[int, int]:
        """Changes when a file is replaced; raises OSError while one is missing."""
        return (os.stat(self.certificate).st_mtime_ns, os.stat(self.key).st_mtime_ns)


class _Renewal:
    """Called at each handshake: a new configuration when the files have changed, else None.

    A pair that cannot be used (half-written files) keeps the old one in service.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._version = files.version()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        try:
            version = self._files.version()
            if version == self._version:
                return None
            configuration = self._files.load()
        except (OSError, TlsError) as error:
            logger.warning("keeping the old certificate: %s", error)
            return None
        self._version = version
        return configuration


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Raises TlsError when the files cannot be used now; renewals are picked up by themselves."""
    configuration = files.load()
    # None means "no change" to grpc, which its stubs do not know.
    renewal = cast("Callable[[], grpc.ServerCertificateConfiguration]", _Renewal(files))
    return grpc.dynamic_ssl_server_credentials(configuration, renewal)
