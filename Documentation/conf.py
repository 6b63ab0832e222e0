# SPDX-License-Identifier: Apache-2.0
"""How Sphinx renders this folder: `make docs`. A reference that leads nowhere is an error (tests/lint/documentation.sh)."""
project = "Foundry"
nitpicky = True
html_theme = "alabaster"
html_theme_options = {"page_width": "auto"}
html_show_copyright = False
