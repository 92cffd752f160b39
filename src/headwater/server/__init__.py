"""The server: spaces of one directory for many processes, over WebSocket. Needs the extra `server`."""
