"""Key files, and a token endpoint on loopback that refuses or grants."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def private_key() -> str:
    """A fresh private key in PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def service_account(pem: str, token_uri: str, key_id: str = "1") -> dict[str, str]:
    """The document of a service account's key."""
    return {
        "type": "service_account",
        "project_id": "demo",
        "private_key_id": key_id,
        "private_key": pem,
        "client_email": "relay@demo.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }


def write(path: Path, document: object) -> Path:
    """Replace a key file as Kubernetes and careful people do: at once."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(document))
    draft.replace(path)
    return path


class TokenEndpoint:
    """An OAuth token endpoint that refuses every key until told to grant."""

    def __init__(self) -> None:
        self.grants = False
        self.asked = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                endpoint.asked += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                if endpoint.grants:
                    self._answer(200, {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"})
                else:
                    self._answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})

            def _answer(self, status: int, document: dict[str, object]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Nothing to say."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
