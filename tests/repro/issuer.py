"""An identity provider for the scripts here: it serves its keys over HTTP, signs tokens, and can be slow or broken.

It also answers `allow` to the questions of the HTTP back end, and keeps them.
"""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from rig import admin, administration, free_port, grpc

EVERYTHING = "mq.configure:*/* mq.write:*/* mq.read:*/*"


class Issuer:
    """`keys` are by id; `questions` are path, form and cookies."""

    def __init__(self):
        self.keys = {}
        self.fetched_at: list[float] = []
        self.questions: list[tuple[str, dict[str, str], str]] = []
        self.hang = threading.Event()
        self.status = 200
        self.add("first")
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.fetched_at.append(time.monotonic())
                if issuer.hang.is_set():
                    time.sleep(60)
                content = json.dumps(issuer.page(self.path)).encode()
                with contextlib.suppress(OSError):
                    self.send_response(issuer.status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def do_POST(self):
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode(), keep_blank_values=True)
                asked = {name: values[0] for name, values in form.items()}
                issuer.questions.append((self.path, asked, self.headers.get("Cookie", "")))
                self.send_response(200)
                self.send_header("Content-Length", "5")
                if self.path == "/user":
                    self.send_header("Set-Cookie", f"session={asked['username']}")
                self.end_headers()
                self.wfile.write(b"allow")

            def log_message(self, *_):
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(self, key_id):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self.keys[key_id] = Ed25519PrivateKey.generate()

    def page(self, path):
        from jwt.algorithms import OKPAlgorithm

        if path.endswith("/.well-known/openid-configuration"):
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        keys = [(key_id, json.loads(OKPAlgorithm.to_jwk(key.public_key()))) for key_id, key in self.keys.items()]
        return {"keys": [{**public, "kid": key_id, "use": "sig", "alg": "EdDSA"} for key_id, public in keys]}

    def token(self, seconds, scope, key_id="first", kid="", **claims):
        """`kid` is the key that the token names, when that is another than the one that signs it."""
        import jwt

        content = {"iss": self.url, "aud": "mq", "sub": "anna", "exp": time.time() + seconds, "scope": scope}
        return jwt.encode({**content, **claims}, self.keys[key_id], "EdDSA", {"kid": kid or key_id})

    def settings(self, **more):
        """Return the environment of a broker that takes its tokens."""
        env = {"AUTH_BACKENDS": "local,jwt", "JWT_ISSUER": self.url, "JWT_AUDIENCE": "mq"}
        env |= {"JWT_CLOCK_SKEW_SECONDS": "0"} | {name.upper(): str(value) for name, value in more.items()}
        return {f"PENSTOCK_{name}": value for name, value in env.items()}


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


def status_code(broker, metadata, seconds=60, channel=None):
    """How GetStatus ends, on a new connection unless one is named: OK or the name of the status."""
    with contextlib.ExitStack() as stack:
        used = channel or stack.enter_context(broker.channel())
        try:
            administration(used).GetStatus(admin.GetStatusRequest(), metadata=metadata, timeout=seconds)
        except grpc.RpcError as refused:
            return refused.code().name
    return "OK"
