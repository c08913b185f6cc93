"""Values as they are stored: written as data and names, never as code, and judged before they are built."""
