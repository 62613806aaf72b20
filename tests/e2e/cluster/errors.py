"""The one error that the command line shows without a traceback."""


class ClusterError(RuntimeError):
    """Something of the cluster does not work; the message says what to do about it."""
