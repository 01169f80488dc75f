"""Published ways to schedule, each returning an ordinary schedule."""
