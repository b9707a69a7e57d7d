"""HTML pages that need nothing but themselves: templates, one style sheet, charts."""
