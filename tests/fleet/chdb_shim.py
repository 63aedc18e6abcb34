"""ClickHouse's HTTP interface over chDB, the same engine in a library: for the tests of the ClickHouse store.

Run by the Python that has chDB (see test_clickhouse.py); prints its port. One query at a time. What it does not do: authentication, sessions,
progress headers, compression."""

from __future__ import annotations

import http.server
import re
import sys
import tempfile
import threading
import urllib.parse
from pathlib import Path
from typing import Any


def main() -> None:
    from chdb import session  # type: ignore[import-not-found, unused-ignore]

    folder = Path(tempfile.mkdtemp(prefix="chdb-"))
    engine = session.Session(str(folder / "data"))
    engine.query("CREATE DATABASE IF NOT EXISTS fleet ENGINE = Atomic")
    engine.query("USE fleet")
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            if self.headers.get("transfer-encoding", "") == "chunked":
                parts = []
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                self.answer(b"".join(parts))
            else:
                self.answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

        def answer(self, body: bytes) -> None:
            url = urllib.parse.urlsplit(self.path)
            if url.path == "/ping":
                return self.reply(200, b"Ok.\n")
            parameters = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
            query = parameters.pop("query", None)
            if query is None:
                text, _, rest = body.partition(b"\n") if body[:6].upper() == b"INSERT" else (body, b"", b"")  # an INSERT's data follow its line
                query, body = text.decode(), rest
            settings = {k: v for k, v in parameters.items() if re.fullmatch(r"[a-z_]+", k) and k not in _TRANSPORT}
            try:
                with lock:
                    self.reply(200, self.run_query(query, body, settings))
            except Exception as error:
                self.reply(500, str(error).encode())

        def run_query(self, query: str, body: bytes, settings: dict[str, str]) -> bytes:
            listed = ", ".join(f"{k} = '{v}'" for k, v in settings.items())
            insert = re.match(r"\s*INSERT\s+INTO\s+(\S+)\s*(\([^)]*\))?\s*(?:SETTINGS.*?)?FORMAT\s+(\w+)\s*", query, re.IGNORECASE | re.DOTALL)
            if insert:
                path = folder / "insert.data"
                path.write_bytes(body)
                columns = (insert[2] or "").strip()
                names = columns.strip("()") or "*"
                query = f"INSERT INTO {insert[1]} {columns} SELECT {names} FROM file('{path}', '{insert[3]}')"
                if listed:
                    query += f" SETTINGS {listed}"
                engine.query(query)
                return b""
            format = "TabSeparated"
            found = re.search(r"\sFORMAT\s+(\w+)\s*$", query, re.IGNORECASE)
            if found:
                format, query = found[1], query[: found.start()]
            if listed and re.match(r"\s*(SELECT|WITH)\b", query, re.IGNORECASE):
                query += f"\nSETTINGS {listed}"
            return bytes(engine.query(query, format).bytes())

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-ClickHouse-Summary", "{}")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()  # ends with its parent
    server.serve_forever()


_TRANSPORT = {
    "database", "user", "password", "session_id", "session_timeout", "query_id", "compress", "decompress", "enable_http_compression", "wait_end_of_query",
    "client_protocol_version", "send_progress_in_http_headers", "http_headers_progress_interval_ms", "cancel_http_readonly_queries_on_client_close",
    "default_format", "buffer_size", "role",
}  # fmt: skip

if __name__ == "__main__":
    main()
