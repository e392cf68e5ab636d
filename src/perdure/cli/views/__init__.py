"""Views: render results as text and JSON."""
