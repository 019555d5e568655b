"""An engine in a few lines that loads for some requests: `fake_engine.py PORT REQUESTS`."""

import http.server
import json
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    left = int(sys.argv[2])

    def do_GET(self):
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


sys.stderr.write("fake engine starts\n")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
