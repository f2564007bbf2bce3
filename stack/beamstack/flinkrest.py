"""Asks a Flink over its REST API."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from beamstack.errors import CannotRun

SECONDS = 5.0
SAVEPOINT_SECONDS = 120.0
ENDED = ('FINISHED', 'FAILED', 'CANCELED')


class Rest:
  """The REST API of a Flink on this machine."""

  def __init__(self, port: int):
    self._url = f'http://127.0.0.1:{port}'

  def get(self, path: str) -> Any:
    return self._ask(urllib.request.Request(self._url + path))

  def _ask(self, request: urllib.request.Request) -> Any:
    try:
      with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        text = answer.read()
    except (urllib.error.URLError, OSError) as e:
      raise CannotRun(
          f'Flink does not answer at {request.full_url}: {e}',
          './beamstack cluster status') from e
    return json.loads(text) if text.strip() else {}

  def answers(self) -> bool:
    try:
      self.get('/overview')
      return True
    except CannotRun:
      return False

  def overview(self) -> dict:
    return self.get('/overview')

  def jobs(self) -> list[dict]:
    """All jobs, the newest first."""
    return sorted(
        self.get('/jobs/overview')['jobs'],
        key=lambda job: -job['start-time'])

  def job(self, job_id: str) -> dict:
    return self.get(f'/jobs/{job_id}')

  def checkpoints(self, job_id: str) -> dict:
    return self.get(f'/jobs/{job_id}/checkpoints')

  def task_managers_of(self, job_id: str) -> dict[str, list[str]]:
    """The names of a job's running tasks by the TaskManager they are on."""
    found: dict[str, list[str]] = {}
    for vertex in self.job(job_id)['vertices']:
      path = f'/jobs/{job_id}/vertices/{vertex["id"]}'
      for task in self.get(path)['subtasks']:
        if task['status'] in ('RUNNING', 'INITIALIZING'):
          name = f'{vertex["name"][:40]} {task["subtask"]}'
          found.setdefault(task['taskmanager-id'], []).append(name)
    return found

  def cancel(self, job_id: str) -> None:
    self._ask(
        urllib.request.Request(
            f'{self._url}/jobs/{job_id}?mode=cancel', method='PATCH'))

  def stop(self, job_id: str) -> str:
    """Takes a savepoint, and stops a job with it; returns its path."""
    asked = self._ask(
        urllib.request.Request(
            f'{self._url}/jobs/{job_id}/stop', method='POST',
            data=json.dumps({'drain': False}).encode(),
            headers={'Content-Type': 'application/json'}))
    path = f'/jobs/{job_id}/savepoints/{asked["request-id"]}'

    def done(rest: 'Rest') -> dict | None:
      said = rest.get(path)
      return said if said['status']['id'] == 'COMPLETED' else None

    said = self.wait('a savepoint', done, SAVEPOINT_SECONDS)['operation']
    if 'location' not in said:
      cause = said.get('failure-cause', {}).get('stack-trace', 'no cause told')
      raise CannotRun(
          'Flink took no savepoint: ' + cause.strip().splitlines()[0],
          './beamstack cluster logs job-manager')
    return said['location']

  def wait(
      self, what: str, condition: Callable[['Rest'], Any],
      seconds: float) -> Any:
    """Asks again until the condition gives something, and returns that."""
    end = time.monotonic() + seconds
    while True:
      try:
        found = condition(self)
      except CannotRun:
        found = None
      if found:
        return found
      if time.monotonic() > end:
        raise CannotRun(
            f'waited {seconds:.0f} s for {what}', './beamstack cluster logs')
      time.sleep(0.2)
