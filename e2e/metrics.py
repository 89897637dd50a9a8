"""/metrics in both formats, read by Prometheus' own parsers and held to its rules."""

import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_parser
from prometheus_client.parser import text_string_to_metric_families as text_parser

from checks import HTTP, same


def show(accept):
    request = urllib.request.Request(f"http://127.0.0.1:{HTTP}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=5) as response:
        return response.headers["Content-Type"], response.read().decode()


def samples(families):
    """Each sample by its name and labels; one that comes twice is an error."""
    found = {}
    for family in families:
        for sample in family.samples:
            labels = {name: float(value) if name == "le" else value
                      for name, value in sample.labels.items()}
            key = sample.name, tuple(sorted(labels.items()))
            if key in found:
                raise ValueError(f"twice: {key}")
            found[key] = sample.value
    return found


def doubtful(families):
    """What promtool would say of them."""
    said = []
    for family in families:
        if not family.name.startswith("tollgate_"):
            said.append(f"{family.name}: not ours")
        if not family.documentation or family.type in ("unknown", "untyped"):
            said.append(f"{family.name}: no help or no type")
        if family.type == "counter" and not all(s.name.endswith("_total") for s in family.samples):
            said.append(f"{family.name}: a counter without _total")
        if family.type != "counter" and family.name.endswith("_total"):
            said.append(f"{family.name}: _total, but no counter")
        if not family.samples:
            said.append(f"{family.name}: empty")
    return said


text_type, text = show("*/*")
same("metrics: text is the default", "text/plain; version=0.0.4; charset=utf-8", text_type)
scrape = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
open_type, open_text = show(scrape)
same(
    "metrics: OpenMetrics if asked for",
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
    open_type,
)
same("metrics: OpenMetrics has its end", True, open_text.endswith("\n# EOF\n"))

in_text, in_open = list(text_parser(text)), list(open_parser(open_text))
same("metrics: nothing doubtful in text", [], doubtful(in_text))
same("metrics: nothing doubtful in OpenMetrics", [], doubtful(in_open))
by_text, by_open = samples(in_text), samples(in_open)
same("metrics: both have the same samples", sorted(by_text), sorted(by_open))
same("metrics: counts are whole", [], [key for key, value in by_open.items()
                                       if key[0].endswith(("_total", "_count")) and value % 1])
buckets = [(dict(labels)["le"], value) for (name, labels), value in by_text.items()
           if name == "tollgate_request_duration_seconds_bucket" and ("face", "http") in labels]
buckets.sort()
counts = [count for _, count in buckets]
same("metrics: buckets are cumulative", sorted(counts), counts)
same("metrics: the last bucket is +Inf", float("inf"), buckets[-1][0])
same("metrics: the file is valid", 1.0, by_text["tollgate_config_valid", ()])
