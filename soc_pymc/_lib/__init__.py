"""What every room uses and nothing that knows statistics: errors, arguments, files, progress."""
