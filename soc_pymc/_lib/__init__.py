"""Errors, arguments, files and progress: shared by all rooms, without any statistics."""
