"""Errors, arguments, files and progress: shared by all subpackages, without any statistics."""
