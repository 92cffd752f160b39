"""The runtime: what moves bytes and owns the event loop. So far: transports, and the driver of one session."""
