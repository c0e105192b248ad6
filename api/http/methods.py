"""Methods that every route has without a handler of its own: HEAD where GET is, and OPTIONS."""

from collections.abc import Iterator
from copy import copy

from litestar import HttpMethod, Router
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute


def complete_methods(router: Router) -> Router:
    """Have each path of ``router`` answer HEAD as GET, and OPTIONS with all methods of the path.

    Litestar adds OPTIONS with the first handler of a path, and so lists none of those that are registered after it.
    A HEAD that is added is not in the OpenAPI document: it is GET without the body, which the server leaves out.
    """
    router.routes = [_complete_route(route) if isinstance(route, HTTPRoute) else route for route in router.routes]
    return router


def _complete_route(route: HTTPRoute) -> HTTPRoute:
    own = [handler for handler in route.route_handlers if handler.http_methods != {HttpMethod.OPTIONS}]
    return HTTPRoute(path=route.path, route_handlers=[*own, *_head_handlers(own)])


def _head_handlers(handlers: list[HTTPRouteHandler]) -> Iterator[HTTPRouteHandler]:
    if any(HttpMethod.HEAD in handler.http_methods for handler in handlers):
        return
    for handler in handlers:
        if HttpMethod.GET in handler.http_methods:
            head = copy(handler)
            head.http_methods = {HttpMethod.HEAD.value}
            head.include_in_schema = False
            yield head
