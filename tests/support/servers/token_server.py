"""What gives tokens to a registry's users, on the loopback: its part of the token protocol of registries."""

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TLS = Path(__file__).parents[2] / "cases" / "tls"
KEY, CERTIFICATE = TLS / "localhost.key", TLS / "localhost.pem"
USER, PASSWORD = "author", "secret"
SERVICE, ISSUER = "tests", "benchlock tests"
_LIFE = 300  # seconds


class _Tokens(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        """A token for the scope that is asked for, where the password is right."""
        (scope,) = parse_qs(urlsplit(self.path).query).get("scope", [""])
        self.asked.append(scope)
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        allowed = self.headers["Authorization"] == f"Basic {expected}"
        content = json.dumps({"token": _token(scope)} if allowed else {"errors": []}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as in the class above
        pass


@contextmanager
def giving_tokens() -> Iterator[tuple[str, list[str]]]:
    """A realm, and the scopes that it is asked for."""
    asked: list[str] = []
    answers = type("Tokens", (_Tokens,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join(20)


def _token(scope: str) -> str:
    """A JSON web token (RFC 7519) as docker-registry reads them, signed with ES256."""
    kind, name, actions = scope.split(":") if scope else ("repository", "", "")
    now = int(time.time())
    certificate = base64.b64encode(ssl.PEM_cert_to_DER_cert(CERTIFICATE.read_text())).decode()
    header = {"typ": "JWT", "alg": "ES256", "x5c": [certificate]}
    access = [{"type": kind, "name": name, "actions": actions.split(",")}]
    times = {"iat": now, "nbf": now - 10, "exp": now + _LIFE}
    claims = {"iss": ISSUER, "sub": USER, "aud": SERVICE, "jti": str(now), "access": access} | times
    signed = f"{_encoded(json.dumps(header).encode())}.{_encoded(json.dumps(claims).encode())}"
    command = ["openssl", "dgst", "-sha256", "-sign", str(KEY)]
    der = subprocess.run(command, input=signed.encode(), check=True, capture_output=True).stdout
    return f"{signed}.{_encoded(_integers(der))}"


def _integers(der: bytes) -> bytes:
    """The two integers of an ECDSA signature in DER, 32 bytes each."""
    found, place = b"", 2
    for _ in range(2):
        length = der[place + 1]
        found += der[place + 2 : place + 2 + length].lstrip(b"\0").rjust(32, b"\0")
        place += 2 + length
    return found


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
