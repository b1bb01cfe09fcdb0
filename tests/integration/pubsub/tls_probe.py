"""A server with TLS that takes the place of the real service: run as a program, it prints what a sink met there.

The server accepts only calls with a token signed by the second key. The sink starts with the first one.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.pubsub_v1.types import PublishResponse

from engine.pubsub.errors import FailureKind, classify
from tests.integration.pubsub.conftest import QUICK, Bench, message, send
from tests.integration.pubsub.keys import private_key, service_account, write


def certificate(directory: Path) -> tuple[bytes, bytes]:
    """A self-signed certificate for this machine and its key; the certificate becomes a trusted root."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    (directory / "roots.pem").write_bytes(pem)
    os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(directory / "roots.pem")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem, private


def publish(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Accept only what the second key has signed."""
    metadata = dict(context.invocation_metadata())
    token = metadata["authorization"].removeprefix("Bearer ")
    header = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
    assert metadata["x-goog-request-params"] == "topic=projects/demo/topics/orders"
    if header["kid"] != "second":
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials.")
    return PublishResponse.serialize(PublishResponse(message_ids=["1"]))


def main(directory: Path) -> None:
    """Serve, publish until the swapped key is accepted, print the way there."""
    chain, key = certificate(directory)
    server = grpc.server(ThreadPoolExecutor(2))
    methods = {"Publish": grpc.unary_unary_rpc_method_handler(publish)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("google.pubsub.v1.Publisher", methods),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    server.start()
    pem = private_key()
    path = write(directory / "key.json", service_account(pem, "https://oauth2.googleapis.com/token", "first"))
    bench = Bench(None, limits=replace(QUICK, key_file_poll_s=0.05))
    sink = bench.sink(endpoint=f"localhost:{port}", key_file=str(path))
    error = send(sink, message("x")).exception(20)
    assert error is not None
    failure = classify(error, sink.topic)
    assert (failure.kind, failure.code) == (FailureKind.CHANNEL, "UNAUTHENTICATED"), failure
    write(path, service_account(pem, "https://oauth2.googleapis.com/token", "second"))
    deadline = time.monotonic() + 20
    while send(sink, message("x")).exception(20) is not None:
        assert time.monotonic() < deadline, "the new key was never used"
        time.sleep(0.05)
    bench.close()
    server.stop(0).wait()
    print("published")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
