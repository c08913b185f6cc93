"""Programs with tables, as people write them for PyFlink, and what they print there (`printed.json`)."""
