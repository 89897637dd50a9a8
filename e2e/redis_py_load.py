"""redis-py as it comes, asking without a pause for some seconds; prints how it went.

Usage: redis_py_load.py SECONDS. What a connection that ended may have left open, redis-py asks
again by itself; what counts as failed is what its caller sees.
"""

import collections
import sys
import time

import redis

from checks import RESP

client = redis.Redis(port=RESP)
end = time.monotonic() + float(sys.argv[1])
asked, failed = 0, collections.Counter()
while time.monotonic() < end:
    asked += 1
    try:
        client.execute_command("CL.THROTTLE", f"load {asked % 100}", 15, 30, 60)
    except redis.RedisError as error:
        failed[f"{type(error).__name__}: {error}"] += 1
print(f"asked={asked} failed={failed.total()}", *failed.items())
