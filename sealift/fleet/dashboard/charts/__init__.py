"""Charts as SVG made here: a title and a description for those who do not see them, classes for the colours, no script and no inline style."""
