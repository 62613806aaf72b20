"""Refusals in the shape of OpenAI's API: `{"error": {message, type, param, code}}`."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError


class ApiError(Exception):
    """A request that is refused, with what its sender gets to read."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

    def response(self) -> JSONResponse:
        """The HTTP answer."""
        return JSONResponse(
            error_body(self.message, param=self.param, code=self.code), status_code=self.status
        )


def error_body(
    message: str,
    *,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """Return the JSON of a refusal."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def unknown_model(name: str) -> ApiError:
    """Refuse a model that is not there."""
    message = f"The model `{name}` does not exist or you do not have access to it."
    return ApiError(message, status=404, code="model_not_found")


def invalid_request(error: ValidationError) -> ApiError:
    """Say what is wrong with the first field that is, as OpenAI words it."""
    first = error.errors()[0]
    param = _path(first["loc"])
    context: Mapping[str, Any] = first.get("ctx", {})
    match first["type"]:
        case "missing":
            return ApiError(
                f"Missing required parameter: '{param}'.",
                param=param,
                code="missing_required_parameter",
            )
        case "extra_forbidden":
            return ApiError(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")
        case "literal_error":
            message = (
                f"Invalid value: '{first['input']}'. Supported values are: {context['expected']}."
            )
            return ApiError(message, param=param, code="invalid_value")
        case "too_short":
            message = (
                f"Invalid '{param}': empty array. Expected an array with minimum length "
                f"{context['min_length']}, but got an empty array instead."
            )
            return ApiError(message, param=param, code="empty_array")
        case "less_than_equal" | "greater_than_equal" as bound:
            return _out_of_bounds(param, bound, first["input"], context)
        case _:
            message = f"Invalid type for '{param}': {first['msg']}."
            return ApiError(message, param=param, code="invalid_type")


def _out_of_bounds(param: str, bound: str, value: Any, context: Mapping[str, Any]) -> ApiError:
    kind = "integer" if isinstance(value, int) else "decimal"
    side, code, sign, limit = (
        ("above maximum", "above_max", "<=", context["le"])
        if bound == "less_than_equal"
        else ("below minimum", "below_min", ">=", context["ge"])
    )
    message = (
        f"Invalid '{param}': {kind} {side} value. "
        f"Expected a value {sign} {limit}, but got {value} instead."
    )
    return ApiError(message, param=param, code=f"{kind}_{code}_value")


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith(("str", "list[")):  # the member of a union, not a field
            path += f".{part}" if path else part
    return path
