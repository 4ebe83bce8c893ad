"""A worker as a user of pydisque writes it; what it sees goes to stdout as JSON."""

import json
import sys

from pydisque.client import Client

port, queue = sys.argv[1:]
client = Client([f"127.0.0.1:{port}"])
client.connect()
seen: dict = {"node": len(client.connected_node.node_id)}
first = client.add_job(queue, "one", timeout=5000, retry=30, ttl=600)
second = client.add_job(queue, "two", timeout=5000, replicate=1, maxlen=10)
seen["length"] = client.qlen(queue)
seen["peeked"] = [body.decode() for _, _, body in client.qpeek(queue, 2)]
((name, job, body),) = client.get_job([queue], timeout=5000)
seen["got"] = [name.decode(), job == first, body.decode()]
seen["working"] = client.working(job)
client.nack_job(job)
jobs = client.get_job([queue], timeout=5000, count=2, withcounters=True)
seen["counters"] = [[body.decode(), nacks, again] for _, _, body, nacks, again in jobs]
seen["shown"] = client.show(first, return_dict=True)[b"state"].decode()
client.ack_job(first, second)
seen["nothing"] = client.get_job([queue], nohang=True)
seen["stat"] = client.qstat(queue, return_dict=True)[b"jobs-out"]
third = client.add_job(queue, "three", timeout=5000)
seen["dequeued"] = client.dequeue(third)
seen["enqueued"] = client.enqueue(third)
client.fast_ack(third)
seen["paused"] = client.pause(queue, kw_in=True).decode()
seen["resumed"] = client.pause(queue, kw_none=True).decode()
seen["scanned"] = queue.encode() in client.qscan(count=1000)[1]
seen["jobs"] = client.jscan(queue=queue, busyloop=True)[1]
print(json.dumps(seen))
