import os

# An output that is formatted into text is a fault: fail where it happens.
os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "true"
