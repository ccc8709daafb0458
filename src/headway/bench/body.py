"""The body of one request, as bytes."""

import msgspec

from headway.bench.plan import BenchPlan
from headway.workload import text
from headway.workload.request import Request

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


def path(plan: BenchPlan) -> str:
    """The route below the server's address."""
    return _PATHS[plan.endpoint]


def encode(plan: BenchPlan, model: str, request: Request) -> bytes:
    """JSON of a chat or completions request. The session travels as OpenAI's `user`, where there is one."""
    fields: dict[str, object] = {"model": model}
    if plan.endpoint == "chat":
        fields["messages"] = text.messages(request, plan.seed)
    else:
        fields["prompt"] = text.prompt(request, plan.seed)
    if request.session:
        fields["user"] = request.session
    if plan.exact_output:
        fields |= {"max_tokens": request.output_tokens, "ignore_eos": True}
    elif plan.max_tokens:
        fields["max_tokens"] = plan.max_tokens
    fields["temperature"] = 0
    if plan.stream:
        fields["stream"] = True
        if plan.usage:
            fields["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(fields)
