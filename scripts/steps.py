"""Steps that know whether they were done, and tell the user what they do."""

import hashlib
import time


def say(text):
    """Tell the user what happens, one line."""
    print('setup: ' + text, flush=True)


class Step:
    """One step of set-up with its stamp."""

    def __init__(self, folder, name, inputs):
        self._stamp, self._running = folder / name, folder / (name + '.running')
        self.key = hashlib.sha256('\n'.join(inputs).encode()).hexdigest()
        self.name = name

    @property
    def done(self):
        """Whether it ran to its end with the same inputs."""
        return self._stamp.is_file() and self._stamp.read_text() == self.key

    @property
    def was_interrupted(self):
        """Whether an earlier run began it and did not end it."""
        return self._running.exists()

    def run(self, text, action):
        """Do the work unless it is done."""
        if self.done:
            return
        say(text)
        started = time.monotonic()
        interrupted = self.was_interrupted
        self._running.touch()
        self._stamp.unlink(missing_ok=True)
        action(interrupted)
        self._stamp.write_text(self.key)
        self._running.unlink()
        say(f'{self.name} done in {time.monotonic() - started:.0f} s')
