"""The images' health check: exits 0 when the service in this container says that it is ready."""

import os
import sys
import urllib.request

try:
    urllib.request.urlopen(f"http://127.0.0.1:{os.environ['SUB100_OPS_PORT']}/readyz", timeout=2).close()
except OSError as error:
    sys.exit(f"not ready: {error}")
