"""The one HTTP server of all three programs, its connections, and what a handler gets and gives."""
