"""What schemathesis is told beyond the document."""

import schemathesis

# Schemas of answers are closed here, and only here: clients are to bear members that are new, but
# this daemon's are all to be described.
ANSWERS = {"Pass", "Deny", "BatchResult", "Denial", "Problem", "Reserved", "Correction", "KeyState",
           "Explanation", "Limits", "Limit", "Offenders"}


def close(schema):
    if isinstance(schema, dict):
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            close(part)
    elif isinstance(schema, list):
        for part in schema:
            close(part)


@schemathesis.hook
def before_load_schema(context, raw_schema):
    for name in ANSWERS:
        close(raw_schema["components"]["schemas"][name])
    # A reservation that was made is settled, and cancelled.
    made = {"reservation": "$response.body#/reservation"}
    raw_schema["paths"]["/v1/reserve"]["post"]["responses"]["200"]["links"] = {
        "settle": {"operationId": "settle", "requestBody": {**made, "used": 1}},
        "cancel": {"operationId": "cancel", "requestBody": made},
    }


@schemathesis.hook
def map_body(context, body):
    """JSON Schema takes 90.0 for an integer; the daemon reads whole numbers without a fraction."""
    return whole(body)


def whole(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: whole(part) for name, part in value.items()}
    if isinstance(value, list):
        return [whole(part) for part in value]
    return value
