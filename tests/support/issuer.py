"""An identity provider for tests: keys that can be changed, tokens signed with them, and its pages over HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm


class Issuer:
    """Keys by id: `rotate` replaces all by a new one."""

    def __init__(self, url: str = "https://issuer.example") -> None:
        self.url = url
        self.keys: dict[str, Ed25519PrivateKey] = {}
        self.key_id = ""
        self.fetched: list[str] = []
        self.answers: dict[str, str] = {}
        self.questions: list[tuple[str, dict[str, str]]] = []
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        self.keys = {key_id: Ed25519PrivateKey.generate()}
        self.key_id = key_id

    def token(self, exp: float | None, scope: str = "", **claims: Any) -> str:
        """Return a token; a claim that is None is left out."""
        key = claims.pop("key", self.keys[self.key_id])
        key_id = claims.pop("kid", self.key_id)
        head = {} if key_id is None else {"kid": key_id}
        content = {"iss": self.url, "aud": "mq", "sub": "anna", "exp": exp, "scope": scope, **claims}
        return jwt.encode({name: value for name, value in content.items() if value is not None}, key, "EdDSA", head)

    def page(self, url: str) -> dict[str, Any]:
        self.fetched.append(url)
        if url.endswith("/.well-known/openid-configuration"):
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        keys = []
        for key_id, key in self.keys.items():
            public = json.loads(OKPAlgorithm.to_jwk(key.public_key()))
            keys.append({**public, "kid": key_id, "use": "sig", "alg": "EdDSA"})
        return {"keys": keys}


@contextmanager
def serving() -> Iterator[Issuer]:
    """Serve an issuer's pages; POSTs of forms get `answers` by path."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(json.dumps(issuer.page(issuer.url + self.path)))

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode(), keep_blank_values=True)
            issuer.questions.append((self.path, {name: values[0] for name, values in form.items()}))
            self._answer(issuer.answers.get(self.path, "deny"))

        def _answer(self, text: str) -> None:
            content = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
