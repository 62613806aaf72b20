"""Speed of the service, side by side with floors and with the published kaos-memory."""
