"""Works off a queue. A job that fails is tried again immediately, without a limit."""

from run import connect, path, report, stopped


def do(job):
    report("working on " + job.decode())


client = connect()
# begin
jobs = client.LockingQueue(path)
while not stopped():
    job = jobs.get(timeout=1)
    if job is None:
        continue
    try:
        do(job)
        jobs.consume()
    except Exception:
        jobs.release()
# end
