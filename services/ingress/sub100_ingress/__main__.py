"""``python -m sub100_ingress``."""

from sub100_shared import lifecycle

from .config import IngressConfig
from .service import build

if __name__ == "__main__":
    lifecycle.run("ingress", IngressConfig, build)
