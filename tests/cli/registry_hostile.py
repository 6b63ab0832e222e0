# SPDX-License-Identifier: Apache-2.0
"""registry_hostile.py PORT FOLDER [OTHER] - a registry for tests, with faults.

It stands before the real registry at OTHER ("HOST:PORT", HTTP) and passes requests on. The file
FOLDER/faults has lines

    METHOD REGEX COUNT FAULT [ARGUMENT]

For the next COUNT requests with this method whose path matches, the fault happens instead; a line
counts only if the ones before do not match. After the fault "down" no request gets an answer until
the file changes. FOLDER/headers gets the method, path, Authorization and Range of every request. If
the file FOLDER/tokens exists, requests need one of the tokens that it lists; /token issues them. To
delete needs one that was asked for with this right.

HOSTILE_TLS="CERTIFICATE KEY CA" makes it speak TLS. It then asks for a certificate of the client,
needs none, and notes the subject's name in FOLDER/headers behind the rest.
"""
import http.client
import http.server
import json
import os
import re
import signal
import socketserver
import ssl
import sys
import threading
import time

folder = sys.argv[2]
other = sys.argv[3] if len(sys.argv) > 3 else None
lock = threading.Lock()
used = {}
down = None  # The time of the faults' file when the registry went down.


def faults_time():
    try:
        return os.stat(os.path.join(folder, "faults")).st_mtime_ns
    except FileNotFoundError:
        return 0


def is_down():
    return down is not None and down == faults_time()


class Down(Exception):
    """No request gets an answer any more."""


def fault_for(method, path):
    """The fault of the first line that matches and has some left, as a list of words."""
    with lock:
        try:
            with open(os.path.join(folder, "faults"), encoding="utf-8") as f:
                lines = f.read().splitlines()
                when = os.fstat(f.fileno()).st_mtime_ns
        except FileNotFoundError:
            return []
        for line in lines:
            want, regex, count, *fault = line.split() or ("", "", "0")
            if want in (method, "*") and re.search(regex, path):
                used[when, line] = used.get((when, line), 0) + 1
                if used[when, line] <= int(count):
                    return fault
    return []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # A body must not wait until the client has confirmed its head.

    def log_message(self, *_):
        pass

    def note(self):
        with lock, open(os.path.join(folder, "headers"), "a", encoding="utf-8") as f:
            f.write(f"{self.command} {self.path} {self.headers.get('Authorization', '-')} "
                    f"{self.headers.get('Range', '-')} {self.client()}\n")

    def client(self):
        """The name in the client's certificate."""
        peer = getattr(self.connection, "getpeercert", dict)() or {}
        return dict(pair[0] for pair in peer.get("subject", ())).get("commonName", "-")

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, headers=(), body=b"", length=None):
        if is_down():
            raise Down
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def go_down(self, when):
        """Stop to answer before the request is passed on, after it, or in the middle."""
        global down
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length // 2 if when == "half" else length)
        if when == "after":
            self.ask_other(body)
        elif when == "half" and not length:
            status, headers, data, _ = self.ask_other(body)
            self.answer(status, headers, data[:len(data) // 2], len(data))
            self.wfile.flush()
        down = faults_time()
        raise Down

    def kill(self, pid):
        """Kill the real registry, which has half of the request."""
        length = int(self.headers.get("Content-Length") or 0)
        connection = http.client.HTTPConnection(other, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(self.rfile.read(length // 2) or None)
        os.kill(int(pid), signal.SIGKILL)
        connection.close()
        raise Down

    def ask_other(self, body):
        """Status, headers and body of the real registry's answer."""
        connection = http.client.HTTPConnection(other, timeout=60)
        headers = {k: v for k, v in self.headers.items()
                   if k.lower() not in ("host", "connection", "content-length")}
        headers["Host"] = self.headers["Host"]  # Locations lead back here.
        connection.request(self.command, self.path, body, headers)
        got = connection.getresponse()
        data = got.read()
        keep = [(k, v) for k, v in got.getheaders() if k.lower() not in
                ("content-length", "transfer-encoding", "connection", "date", "server")]
        length = got.getheader("Content-Length")
        connection.close()
        return got.status, keep, data, length

    def pass_on(self, body, change=None):
        status, headers, data, length = self.ask_other(body)
        if change and status in (200, 201, 206):
            status, headers, data = change(status, headers, data)
            length = None
        self.answer(status, headers, data, length if self.command == "HEAD" else None)

    def end(self):
        """Close the connection without a further byte."""
        self.close_connection = True
        try:
            self.connection.shutdown(2)
        except OSError:
            pass  # The client has closed it.

    def fault(self, name, argument, body):
        if name == "pass":
            self.pass_on(body)
        elif name == "status":
            status, _, header = argument.partition(",")
            headers = [tuple(header.split(":", 1))] if header else []
            self.answer(int(status), headers, b'{"errors":[{"code":"TEST","message":"a fault"}]}')
        elif name == "code":
            self.answer(400, (), json.dumps({"errors": [{"code": argument}]}).encode())
        elif name == "drop":
            self.end()
        elif name in ("cut", "stall"):
            status, headers, data, _ = self.ask_other(body)
            self.answer(status, headers, data[:int(argument)], len(data))
            self.wfile.flush()
            if name == "stall":
                time.sleep(20)
            self.end()
        elif name == "unended":  # all bytes, and then it breaks off where one more should come
            status, headers, data, _ = self.ask_other(body)
            self.answer(status, headers, data, len(data) + 1)
            self.wfile.flush()
            self.end()
        elif name == "drip":  # slow, but alive
            status, headers, data, _ = self.ask_other(body)
            self.answer(status, headers, b"", len(data))
            step = len(data) // 8 + 1
            for at in range(0, len(data), step):
                time.sleep(float(argument))
                self.wfile.write(data[at:at + step])
                self.wfile.flush()
        elif name == "trickle":  # two bytes a second, without end
            self.answer(200, [], b"", 1 << 30)
            until = time.monotonic() + 60
            while time.monotonic() < until:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.5)
        elif name == "until":  # no answer before this file exists; FOLDER/waits says that it waits
            with open(os.path.join(folder, "waits"), "w", encoding="utf-8"):
                pass
            while not os.path.exists(argument):
                time.sleep(0.02)
            again = fault_for(self.command, self.path) or ["pass"]
            self.fault(again[0], again[1] if len(again) > 1 else None, body)
        elif name == "flip":
            self.pass_on(body, lambda s, h, d: (s, h, d[:-1] + bytes([d[-1] ^ 1])))
        elif name == "chatty":
            status, headers, data, _ = self.ask_other(body)
            self.answer(status, headers, data + b'{"done": true}')
        elif name == "longer":
            self.pass_on(body, lambda s, h, d: (s, h, d + b"x"))
        elif name == "shorter":
            self.pass_on(body, lambda s, h, d: (s, h, d[:-1]))
        elif name == "rangeless":  # breaks off, and cannot go on
            del self.headers["Range"]
            status, headers, data, _ = self.ask_other(body)
            self.answer(status, headers, data[:int(argument)], len(data))
            self.wfile.flush()
            self.end()
        elif name == "endless":
            self.answer(int(argument), [], b"", 1 << 40)
            until = time.monotonic() + 20
            while time.monotonic() < until:
                self.wfile.write(b" " * 65536)
        elif name == "digest":
            self.pass_on(body, lambda s, h, d: (s, [(k, "sha256:" + "0" * 64) if k.lower() ==
                                                    "docker-content-digest" else (k, v)
                                                    for k, v in h], d))
        elif name == "norange":
            del self.headers["Range"]
            self.pass_on(body)
        elif name == "expire":
            with open(os.path.join(folder, "tokens"), "w", encoding="utf-8"):
                pass
            self.challenge()
        elif name == "file":
            with open(argument, "rb") as f:
                self.answer(200, [("Content-Type", "application/vnd.oci.image.manifest.v1+json")],
                            f.read())
        elif name == "pages":  # of a list of tags: LENGTH, or LENGTH,URL of the next page
            self.pages(body, argument)
        elif name == "redirect":
            self.answer(307, [("Location", argument + self.path)])
        elif name == "location":  # of an upload
            status, headers, data, _ = self.ask_other(body)
            self.answer(status, [(k, argument if k.lower() == "location" else v)
                                 for k, v in headers], data)
        else:
            raise SystemExit(f"no such fault: {name}")

    def do(self):
        try:
            self.handle_request()
        except (Down, ConnectionRefusedError, ConnectionResetError,
                http.client.RemoteDisconnected):
            self.end()

    def handle_request(self):
        self.note()
        if is_down():
            raise Down
        if self.path.startswith("/token"):
            self.token(self.body())
            return
        fault = fault_for(self.command, self.path)
        if fault and fault[0] == "down":
            self.go_down(fault[1])
        elif fault and fault[0] == "kill":
            self.kill(fault[1])
        body = self.body()
        if fault:
            self.fault(fault[0], fault[1] if len(fault) > 1 else None, body)
        elif os.path.exists(os.path.join(folder, "tokens")) and not self.may():
            self.challenge()
        elif other:
            del self.headers["Authorization"]
            self.pass_on(body)
        else:
            self.answer(200, [], self.path.encode())

    def pages(self, body, argument):
        """One page of the list of tags, with a link to the next."""
        length, _, host = argument.partition(",")
        _, _, data, _ = self.ask_other(body)
        listed = json.loads(data)["tags"]
        last = re.search("last=([0-9]+)", self.path)
        first = int(last[1]) if last else 0
        link = []
        if first + int(length) < len(listed):
            link = [("Link", f'<{host}/v2/models/tags/list?n=9&last={first + int(length)}>; '
                     'rel="next"')]
        tags = json.dumps({"tags": listed[first:first + int(length)]})
        self.answer(200, link, tags.encode())

    def challenge(self):
        host = self.headers["Host"]
        self.answer(401, [("WWW-Authenticate", f'Bearer realm="http://{host}/token",'
                           'service="test",scope="repository:m/one:pull,push"')],
                    b'{"errors":[{"code":"UNAUTHORIZED","message":"no token"}]}')

    def may(self):
        """Is the token one of those that count?"""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with open(os.path.join(folder, "tokens"), encoding="utf-8") as f:
            listed = token in f.read().split()
        return listed and (self.command != "DELETE" or token.startswith("delete"))

    def token(self, body):
        fault = fault_for(self.command, self.path)
        if fault:
            self.fault(fault[0], fault[1] if len(fault) > 1 else None, body)
            return
        right = "delete" if "delete" in self.path + body.decode() else "token"
        name = f"{right}{time.monotonic_ns()}"
        with open(os.path.join(folder, "tokens"), "a", encoding="utf-8") as f:
            f.write(name + "\n")
        with open(os.path.join(folder, "asked"), "a", encoding="utf-8") as f:
            f.write(f"{self.command} {self.path} {self.headers.get('Authorization', '-')} "
                    f"{body.decode()}\n")
        self.answer(200, [], f'{{"token": "{name}", "expires_in": 300}}'.encode())

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # A client that closes its connection.


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
if "HOSTILE_TLS" in os.environ:
    certificate, key, ca = os.environ["HOSTILE_TLS"].split()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
