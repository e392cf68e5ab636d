"""What can be asked of Perdure: every operation, declared once for all interfaces."""
