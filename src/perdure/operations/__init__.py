"""Every operation, declared once for all interfaces."""
