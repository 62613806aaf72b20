"""What operators see: logs. They hold no memory content, no token, no DSN."""
