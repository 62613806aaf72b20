"""Tools to work on the agent memory without a cluster. The product never imports them."""
