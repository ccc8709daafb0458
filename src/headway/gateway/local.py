"""Requests that the gateway answers itself, once they are read: models, health, preflights, and what is not served."""

from urllib.parse import unquote

from headway.gateway.head import RequestHead
from headway.gateway.notes import Notes
from headway.gateway.plane import Plane
from headway.gateway.replies import refusal, reply
from headway.gateway.routes import Kind


def answer(plane: Plane, head: RequestHead, notes: Notes, lines: bytes) -> tuple[int, bytes, str]:
    """(status, response, code) of a request that needs no engine. `lines` are the header lines every response has."""
    route, wrong = notes.route, notes.wrong
    if head.method == "OPTIONS":
        methods = ", ".join((*(route.methods if route is not None else ()), "OPTIONS"))
        return 204, reply(204, b"", b"\r\nallow: %b%b%b" % (methods.encode(), plane.cors.preflight(head), lines)), ""
    if wrong is not None:
        if route is not None:
            lines = b"\r\nallow: %b%b" % (", ".join(route.methods).encode(), lines)
        return wrong.status, refusal(wrong.status, wrong.code, wrong.message, lines), wrong.code
    assert route is not None
    if route.kind is Kind.MODELS:
        return 200, reply(200, plane.model_list.page(notes.models), lines), ""
    if route.kind is Kind.MODEL:
        card = plane.model_list.card(unquote(head.path.removeprefix("/v1/models/")), notes.models)
        if card is not None:
            return 200, reply(200, card, lines), ""
        code = "model_not_found"
        text = f"The model does not exist{plane.model_list.instead(notes.models)}"
        return 404, refusal(404, code, text, lines, "model"), code
    if plane.draining:
        return 503, reply(503, b'{"status":"draining"}', lines), "draining"
    return 200, reply(200, b'{"status":"ok"}', lines), ""
