"""Which owners a request covers."""
