"""What a service's ``/metrics`` says, parsed by the Prometheus client's own parser."""

import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.patience import PATIENCE_S, eventually
from tests.stack import Replica


class Scrape:
    """All samples of one look at some replicas."""

    def __init__(self, *replicas: Replica) -> None:
        self.by_service: dict[str, list[Sample]] = {}
        for replica in replicas:
            with urllib.request.urlopen(f"{replica.ops_url}/metrics", timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
            samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
            self.by_service.setdefault(replica.service, []).extend(samples)

    def samples(self, name: str) -> list[Sample]:
        return [sample for samples in self.by_service.values() for sample in samples if sample.name == name]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of that name that have these labels."""
        return sum(sample.value for sample in self.samples(name) if labels.items() <= sample.labels.items())


def wait_for(look: Callable[[], float], at_least: float) -> None:
    """Scrape again and again until ``look`` gives that much."""
    eventually(lambda: look() >= at_least, f"as much as {at_least}")
