# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx, for `make docs`; tests/lint/documentation.sh makes a warning an error."""
project = "Foundry"
nitpicky = True
html_theme = "alabaster"
html_theme_options = {"page_width": "auto"}
html_show_copyright = False
