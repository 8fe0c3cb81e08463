"""A headless Chromium under control: open, click, read, photograph; every request is noted."""

import base64
import contextlib
import json
import os
from pathlib import Path
import shutil
import signal
import subprocess
import tempfile
import time
from urllib.parse import urlparse
from urllib.request import urlopen

from websockets.sync.client import connect

NAMES = ('chromium', 'chromium-browser', 'google-chrome')
FLAGS = (
    '--headless=new',
    '--no-sandbox',
    '--use-angle=swiftshader',
    '--enable-unsafe-swiftshader',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-default-apps',
    '--disable-sync',
    '--hide-scrollbars',
    '--remote-debugging-port=0',
    '--remote-allow-origins=*',
)

_FIND = """
const all = [...document.querySelectorAll(role + ',[role=' + role + ']')];
const hit = all.find(e => (e.innerText || e.ariaLabel || '').trim() === label
                          && e.getClientRects().length);
if (!hit) return null;
hit.scrollIntoView({block: 'center'});
const box = hit.getBoundingClientRect();
return [box.x + box.width / 2, box.y + box.height / 2];
"""

_FIND_LIST = """
const all = [...document.querySelectorAll('input')].filter(e => e.getClientRects().length);
const of = e => { for (let n = 0; n < 6 && e; n++, e = e.parentElement)
                    if (e.innerText.trim().split('\\n')[0] === label) return true; };
const hit = all.find(of);
if (!hit) return null;
hit.scrollIntoView({block: 'center'});
const box = hit.getBoundingClientRect();
return [box.x + box.width / 2, box.y + box.height / 2];
"""


def installed():
    """Return the path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _on_one_core():
    """Keep a browser that draws in software from holding up what is shown in it."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Browser:
    """One page of a headless Chromium."""

    def __init__(self, url, width=1280, height=800, mobile=False):
        self._folder = tempfile.TemporaryDirectory(prefix='lpgftw-browser-')
        words = [installed(), *FLAGS, f'--user-data-dir={self._folder.name}', 'about:blank']
        self._process = subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_on_one_core,
        )
        self.requests, self.errors = [], []
        self._number = 0
        try:
            self._socket = connect(self._target(), max_size=None, ping_interval=None)
            self._open(url, width, height, mobile)
        except BaseException:  # nobody else would end it
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._folder.cleanup()
            raise

    def _open(self, url, width, height, mobile):
        for domain in ('Page', 'Network', 'Runtime', 'Log'):
            self.call(f'{domain}.enable')
        self.call(
            'Emulation.setDeviceMetricsOverride',
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        self.call('Page.navigate', url=url)

    def _target(self):
        port = Path(self._folder.name) / 'DevToolsActivePort'
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, IndexError):
                number = int(port.read_text().split()[0])
                with urlopen(f'http://127.0.0.1:{number}/json') as answer:
                    pages = [t for t in json.load(answer) if t['type'] == 'page']
                return pages[0]['webSocketDebuggerUrl']
            time.sleep(0.1)
        raise RuntimeError('Chromium does not start')

    def call(self, method, **arguments):
        """Send one command of the DevTools protocol and return its result."""
        self._number += 1
        self._socket.send(json.dumps({'id': self._number, 'method': method, 'params': arguments}))
        while True:
            message = json.loads(self._socket.recv(timeout=180))
            if message.get('id') == self._number:
                if 'error' in message:
                    raise RuntimeError(f'{method}: {message["error"]["message"]}')
                return message['result']
            self._note(message)

    def _note(self, message):
        kind, content = message.get('method'), message.get('params', {})
        if kind == 'Network.requestWillBeSent':
            self.requests.append(content['request']['url'])
        elif kind == 'Network.webSocketCreated':
            self.requests.append(content['url'])
        elif kind == 'Runtime.exceptionThrown':
            details = content['exceptionDetails']
            self.errors.append(details.get('exception', {}).get('description', details['text']))
        elif kind == 'Log.entryAdded' and content['entry']['level'] == 'error':
            self.errors.append(f'{content["entry"]["text"]} {content["entry"].get("url", "")}')
        elif kind == 'Runtime.consoleAPICalled' and content['type'] == 'error':
            self.errors.append(' '.join(str(a.get('value', a)) for a in content['args']))

    def foreign_requests(self):
        """Return the requests to other hosts than this machine."""
        inside = ('127.0.0.1', 'localhost', '')
        web = [
            url for url in self.requests if urlparse(url).scheme in ('http', 'https', 'ws', 'wss')
        ]
        return [url for url in web if urlparse(url).hostname not in inside]

    def run(self, script):
        """Return the value of a JavaScript expression."""
        result = self.call('Runtime.evaluate', expression=script, returnByValue=True)
        return result['result'].get('value')

    def text(self):
        """Return the visible text of the page; nothing while the page is being changed."""
        try:
            return self.run('document.body.innerText') or ''
        except RuntimeError:
            return ''

    def wait_for(self, words, seconds=20.0):
        """Wait until a text is on the page; return the whole text."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if words in (text := self.text()):
                return text
            time.sleep(0.1)
        raise AssertionError(f'{words!r} is not on the page after {seconds} s:\n{self.text()}')

    def press(self, label, role='button', seconds=30.0):
        """Click the visible button, tab or option of this label as a mouse does."""
        words = f'const label = {json.dumps(label)}, role = {json.dumps(role)};'
        script = '(() => {' + words + _FIND + '})()'
        deadline = time.monotonic() + seconds
        while (place := self.run(script)) is None:
            if time.monotonic() > deadline:
                raise AssertionError(f'no {role} {label!r} on the page:\n{self.text()}')
            time.sleep(0.1)
        self._click(*place)
        if role == 'tab':  # a sheet that is still sliding may have moved away under the mouse
            chosen = (
                '[...document.querySelectorAll("[role=tab][aria-selected=true]")]'
                f'.some(e => e.innerText.trim() === {json.dumps(label)})'
            )
            again = time.monotonic() + 3.0
            while not self.run(chosen):
                if time.monotonic() > deadline:
                    raise AssertionError(f'the tab {label!r} does not open:\n{self.text()}')
                if time.monotonic() > again and (place := self.run(script)) is not None:
                    again = time.monotonic() + 3.0
                    self._click(*place)
                time.sleep(0.1)

    def _click(self, x, y):
        for kind in ('mouseMoved', 'mousePressed', 'mouseReleased'):
            button = 'none' if kind == 'mouseMoved' else 'left'
            count = int(button == 'left')
            self.call(
                'Input.dispatchMouseEvent', type=kind, x=x, y=y, button=button, clickCount=count
            )

    def choose(self, label, option):
        """Choose an option of the list with this label."""
        words = f'const label = {json.dumps(label)};'
        place = self.run('(() => {' + words + _FIND_LIST + '})()')
        if place is None:
            raise AssertionError(f'no list {label!r} on the page:\n{self.text()}')
        self._click(*place)
        self.press(option, 'option')

    def picture(self, path):
        """Write what is seen as a PNG file."""
        data = self.call('Page.captureScreenshot', format='png')['data']
        Path(path).write_bytes(base64.b64decode(data))

    def sleep(self):
        """Stop all of the browser, as a closed lid does."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def wake(self):
        """Let it go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def close(self):
        """End the browser."""
        self.wake()
        with contextlib.suppress(Exception):
            self.call('Browser.close')
        self._process.terminate()
        self._process.wait(10)
        with contextlib.suppress(OSError):
            self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
