"""An application by Starlette that answers with the name of the route that served the request.

The header `x-routing` chooses how the application reads a path: as it is, in small letters, by a regular expression that ignores
case, or with dot segments and repeated slashes removed. Applications do all of these.
"""

import posixpath
import re

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route


def named(name):
    async def endpoint(request):
        return PlainTextResponse(name)

    return endpoint


async def admin(scope, receive, send):
    await PlainTextResponse("admin")(scope, receive, send)


starlette = Starlette(
    routes=[
        Mount("/admin", app=admin),
        Route("/login", named("login"), methods=["GET", "POST"]),
        Route("/login/", named("login"), methods=["GET", "POST"]),
        Route("/checkout", named("checkout"), methods=["GET", "POST"]),
        Route("/checkout/", named("checkout"), methods=["GET", "POST"]),
        Route("/{path:path}", named("other"), methods=["GET", "POST"]),
    ]
)


def normal(path):
    return re.sub("^//", "/", posixpath.normpath(path))


def by_expression(path):
    for name in ["login", "checkout"]:
        if re.fullmatch(f"/{name}/?", path, re.IGNORECASE):
            return f"/{name}"
    return path


def in_one_case(convert):
    # The limit on /admin/* goes by case, and so does its route.
    return lambda path: path if convert(path).startswith("/admin") else convert(path)


ROUTINGS = {
    b"as-it-is": lambda path: path,
    b"small-letters": in_one_case(str.lower),
    b"capitals": in_one_case(lambda path: path.upper().lower()),
    b"expression": by_expression,
    b"normal": normal,
}


async def app(scope, receive, send):
    if scope["type"] == "http":
        routing = dict(scope["headers"]).get(b"x-routing", b"as-it-is")
        path = ROUTINGS[routing](scope["path"])
        scope = dict(scope, path=path, raw_path=path.encode())
    await starlette(scope, receive, send)
