"""Routes, limits and errors: the only place that knows HTTP."""
