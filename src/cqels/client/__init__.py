"""A client of a service of `cqels serve`: the words of the engine, over HTTP. It needs httpx: `cqels[http]`.

```python
client = cqels.connect("http://127.0.0.1:7070")
hot = client.register("hot.rq")
client.push("obs", "<http://ex.org/s1> <http://ex.org/temp> 35 .")
for result in hot.results():
    print(result.time, result.python())
```
"""

from cqels.client.async_client import AsyncClient, connect_async
from cqels.client.calls import Pushed
from cqels.client.client_errors import (
    AccessDenied,
    Conflict,
    ConnectionLost,
    NotFound,
    ResultsMissed,
    ServiceBusy,
    ServiceFailed,
    ServiceUnavailable,
)
from cqels.client.remote_query import AsyncRemoteQuery, RemoteQuery
from cqels.client.remote_result import RemoteResult
from cqels.client.sync_client import Client, connect

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "AsyncRemoteQuery",
    "Client",
    "Conflict",
    "ConnectionLost",
    "NotFound",
    "Pushed",
    "RemoteQuery",
    "RemoteResult",
    "ResultsMissed",
    "ServiceBusy",
    "ServiceFailed",
    "ServiceUnavailable",
    "connect",
    "connect_async",
]
