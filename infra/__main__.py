"""The program of every stack: from its configuration to components."""

import pulumi

from stack_reading import read_config
from tenants import build, check_components

config = pulumi.Config()
stack = read_config(config)
check_components(stack, config)
build(stack, config)
