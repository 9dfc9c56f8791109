"""A server that speaks as much of S3 as archives need: objects, also in parts, in memory."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit


class FakeS3:
    """Use it as a context manager. Any bucket exists; `objects` are by bucket and key.

    `completed` and `aborted` count uploads in parts. While `fails` is set, every part is refused.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.completed = self.aborted = 0
        self.fails = False
        self.authorizations: set[str] = set()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead to it."""
        return {
            "AWS_ACCESS_KEY_ID": "the-key",
            "AWS_SECRET_ACCESS_KEY": "the-secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_address[1]}",
            "AWS_ALLOW_HTTP": "true",
        }

    def begin(self) -> bytes:
        """Begin an upload."""
        upload = f"upload-{len(self.uploads)}"
        self.uploads[upload] = {}
        return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")

    def complete(self, key: str, upload: str, body: bytes) -> bytes:
        """Make an object of the parts that the body names."""
        parts = self.uploads.pop(upload)
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        self.objects[key] = b"".join(parts[number] for number in numbers)
        self.completed += 1
        return _xml("CompleteMultipartUploadResult", "<ETag>whole</ETag>")

    def delete(self, bucket: str, body: bytes) -> bytes:
        """Delete the objects that the body names."""
        keys = [key.decode() for key in re.findall(rb"<Key>([^<]+)</Key>", body)]
        for key in keys:
            self.objects.pop(f"{bucket.rstrip('/')}/{key}", None)
        return _xml("DeleteResult", "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    def __init__(self, fake: FakeS3) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake = fake


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_PUT(self) -> None:
        fake, (key, query) = self.server.fake, self._asked()
        body = self._body()
        if "uploadId" not in query:
            fake.objects[key] = body
        elif fake.fails:
            return self._answer(403, _xml("Error", "<Code>AccessDenied</Code>"))
        else:
            fake.uploads[query["uploadId"]][int(query["partNumber"])] = body
        return self._answer(200, etag=hashlib.md5(body, usedforsecurity=False).hexdigest())

    def do_POST(self) -> None:
        fake, (key, query) = self.server.fake, self._asked()
        body = self._body()
        if "uploads" in query:
            self._answer(200, fake.begin())
        elif "delete" in query:
            self._answer(200, fake.delete(key, body))
        else:
            self._answer(200, fake.complete(key, query["uploadId"], body))

    def do_GET(self) -> None:
        key, _ = self._asked()
        found = self.server.fake.objects.get(key)
        if found is None:
            return self._answer(404, _xml("Error", "<Code>NoSuchKey</Code>"))
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            return self._answer(200, found, etag="whole")
        first, last = int(wanted[1]), int(wanted[2])
        return self._answer(206, found[first : last + 1], etag="whole", part=f"bytes {first}-{last}/{len(found)}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        _, query = self._asked()
        self.server.fake.uploads.pop(query["uploadId"], None)
        self.server.fake.aborted += 1
        self._answer(204)

    def _asked(self) -> tuple[str, dict[str, str]]:
        self.server.fake.authorizations.add(self.headers.get("Authorization", "").partition(",")[0])
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        return parts.path.lstrip("/"), {name: values[0] for name, values in query.items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: bytes = b"", etag: str = "", part: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if etag:
            self.send_header("ETag", f'"{etag}"')
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _xml(name: str, content: str) -> bytes:
    return f"<{name}>{content}</{name}>".encode()
