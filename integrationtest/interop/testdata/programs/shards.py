"""Works for a share of the tenants. Whenever a worker joins or leaves, all workers stop all tenants."""

import threading
import time

from run import connect, path, report, stopped, tenants


def work(tenant, stop):
    report("working on " + tenant)
    stop.wait()


client = connect()
# begin
shares = client.SetPartitioner(path, set=tenants, time_boundary=1)
threads, stop = [], threading.Event()
while not stopped():
    if shares.allocating:
        shares.wait_for_acquire()
    elif shares.acquired and not threads:
        stop = threading.Event()
        threads = [threading.Thread(target=work, args=(t, stop)) for t in shares]
        for thread in threads:
            thread.start()
    elif shares.release or shares.failed:
        stop.set()
        for thread in threads:
            thread.join()
        threads = []
        if shares.failed:
            shares = client.SetPartitioner(path, set=tenants, time_boundary=1)
        else:
            shares.release_set()
    time.sleep(0.1)
stop.set()
shares.finish()
# end
