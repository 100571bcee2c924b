"""As much of Google's XML API as larder uses, with its conditions: usage gcs.py PORT.

The objects are in memory. Emulators that could be installed lack PUT of this API, or conditions.
"""

import email.utils
import http.server
import re
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

objects = {}  # by name: content, generation, time
lock = threading.Lock()
last_generation = 1000


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def name(self):
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        return path.lstrip("/").partition("/")[2]

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for header in headers:
            self.send_header(*header)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        global last_generation
        content = self.rfile.read(int(self.headers["Content-Length"]))
        wanted = self.headers["x-goog-if-generation-match"]
        with lock:
            _, generation, _ = objects.get(self.name(), (b"", 0, 0))
            if wanted is not None and int(wanted) != generation:
                return self.answer(412)
            last_generation += 1
            objects[self.name()] = content, last_generation, time.time()
            headers = [("ETag", f'"{last_generation}"'), ("x-goog-generation", last_generation)]
        self.answer(200, headers=headers)

    def do_GET(self):
        if not self.name():
            return self.list()
        with lock:
            found = objects.get(self.name())
        if found is None:
            return self.answer(404)
        content, generation, modified = found
        headers = [
            ("ETag", f'"{generation}"'),
            ("x-goog-generation", generation),
            ("Last-Modified", email.utils.formatdate(modified, usegmt=True)),
        ]
        part = re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        if part is None:
            return self.answer(200, content, headers)
        start, end = int(part[1]), min(int(part[2]) + 1, len(content))
        if start >= end:
            return self.answer(416)
        headers.append(("Content-Range", f"bytes {start}-{end - 1}/{len(content)}"))
        self.answer(206, content[start:end], headers)

    def list(self):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(self.path).query))
        day = "%Y-%m-%dT%H:%M:%S.000Z"
        with lock:
            below = [it for it in sorted(objects.items()) if it[0].startswith(query["prefix"])]
        lines = [
            f"<Contents><Key>{escape(name)}</Key><ETag>{generation}</ETag><Size>{len(content)}</Size>"
            f"<LastModified>{time.strftime(day, time.gmtime(modified))}</LastModified></Contents>"
            for name, (content, generation, modified) in below
        ]
        body = "<ListBucketResult>" + "".join(lines) + "<IsTruncated>false</IsTruncated></ListBucketResult>"
        self.answer(200, body.encode())

    def do_DELETE(self):
        with lock:
            is_gone = objects.pop(self.name(), None) is None
        self.answer(404 if is_gone else 204)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
