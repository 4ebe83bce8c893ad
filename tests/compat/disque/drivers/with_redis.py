"""Raw commands through redis-py, over RESP 2 and 3, alone and in a pipeline; JSON to stdout."""

import json
import sys

import redis

port, queue, protocol = sys.argv[1:]
client = redis.Redis(port=int(port), protocol=int(protocol))
seen: dict = {"ping": client.ping()}
job = client.execute_command("ADDJOB", queue, "one", 5000, "RETRY", 30)
seen["got"] = client.execute_command("GETJOB", "FROM", queue) == [[queue.encode(), job, b"one"]]
seen["acknowledged"] = client.execute_command("ACKJOB", job)
seen["nothing"] = client.execute_command("GETJOB", "NOHANG", "FROM", queue)
seen["unknown"] = client.execute_command("SHOW", job) is None
try:
    client.execute_command("QLEN")
except redis.ResponseError as error:
    seen["error"] = str(error)
with client.pipeline(transaction=False) as pipeline:
    for number in range(100):
        pipeline.execute_command("ADDJOB", queue, str(number), 5000)
    seen["pipelined"] = len(set(pipeline.execute()))
jobs = client.execute_command("GETJOB", "COUNT", 200, "FROM", queue)
seen["in order"] = [body.decode() for _, _, body in jobs] == [str(one) for one in range(100)]
seen["all"] = client.execute_command("ACKJOB", *(text for _, text, _ in jobs))
print(json.dumps(seen))
