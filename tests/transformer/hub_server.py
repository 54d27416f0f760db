"""A model hub of one folder on this machine, for the hub's own client."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40


@contextmanager
def hub(name: str, folder: Path) -> Iterator[str]:
    """The address of a hub that has the folder's files under `name`."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            start = f"/{name}/resolve/"
            if path.startswith(f"/api/models/{name}"):
                files = [{"rfilename": f.name} for f in folder.iterdir()]
                listing: object = {"id": name, "sha": COMMIT, "siblings": files}
                if "/tree/" in path:
                    listing = [
                        {"type": "file", "path": f.name, "oid": "0", "size": 1}
                        for f in folder.iterdir()
                    ]
                data = json.dumps(listing).encode()
                kind = "application/json"
            elif (
                path.startswith(start)
                and (
                    file := folder / path.removeprefix(start).partition("/")[2]
                ).is_file()
            ):
                data, kind = file.read_bytes(), "application/octet-stream"
            else:
                self.send_response(404)
                code = "EntryNotFound" if path.startswith(start) else "RepoNotFound"
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
