"""An engine in a few lines that loads for some requests: `fake_engine.py PORT REQUESTS [MODE]`.

Modes: `crash` dies at the first request, `stubborn` ignores SIGTERM, `chatty` prints a line for
each request.
"""

import http.server
import json
import os
import signal
import sys

MODE = sys.argv[3] if len(sys.argv) > 3 else ""


class Handler(http.server.BaseHTTPRequestHandler):
    left = int(sys.argv[2])

    def do_GET(self):
        if MODE == "crash":
            sys.stderr.write("CUDA out of memory. Tried to allocate 2.00 GiB\n")
            sys.stderr.flush()
            os._exit(3)
        if MODE == "chatty":
            sys.stderr.write(f"asked for {self.path}\n")
            sys.stderr.flush()
        self.reply({"object": "list", "data": [{"id": "fake"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.reply({"choices": [{"message": {"content": "x"}}], "usage": {"completion_tokens": 1}})

    def reply(self, value):
        loading, Handler.left = Handler.left > 0, Handler.left - 1
        body = json.dumps({"error": {"message": "Loading"}} if loading else value).encode()
        self.send_response(503 if loading else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if MODE == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stderr.write("fake engine starts\n")
sys.stderr.flush()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
