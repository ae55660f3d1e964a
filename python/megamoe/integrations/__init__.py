"""Plug-ins for serving frameworks. Importing them imports no framework; installing them does.

Written from the frameworks' sources, tested against fakes with the same interfaces, and never run
within a framework.
"""
