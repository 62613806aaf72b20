"""Why an end-to-end test failed."""


class E2EError(Exception):
    """Something that must hold does not. The message says what was seen."""


def check(holds: object, otherwise: str) -> None:
    """Raise unless something holds."""
    if not holds:
        raise E2EError(otherwise)
