"""What commands print: values to text and to JSON."""
