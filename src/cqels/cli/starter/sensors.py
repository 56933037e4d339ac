"""Plays the part of the sensors: appends a reading of each room to readings.csv every two seconds, until Ctrl-C.

The server room gets too warm every minute.
"""

import math
import time
from datetime import UTC, datetime
from pathlib import Path

ROOMS = {"kitchen": (22.0, 3.0), "office": (21.0, 2.0), "server": (22.0, 8.0)}
FILE = Path(__file__).parent / "readings.csv"


def reading(room: str, now: datetime) -> str:
    mean, swing = ROOMS[room]
    celsius = mean + swing * math.sin(now.timestamp() * math.tau / 60)
    return f"{now:%Y-%m-%dT%H:%M:%SZ},{room},{celsius:.1f}\n"


if __name__ == "__main__":
    try:
        while True:
            with FILE.open("a") as file:
                file.writelines(reading(room, datetime.now(UTC)) for room in ROOMS)
            time.sleep(2)
    except KeyboardInterrupt:
        pass
