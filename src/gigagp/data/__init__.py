"""The rows: sources, scan, scaling, the expert store, and files and folders that are complete or absent."""
