# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx, for `make docs`, which makes a warning an error."""
import importlib.util
import os
import sys

sys.path[:0] = [os.path.abspath("_ext"), os.path.abspath("../api/python")]

project = "Foundry"
extensions = ["sphinx.ext.autodoc", "errcodes", "headers", "notebooks", "stubs", "tables"]
exclude_patterns = ["man"]
nitpicky = True
# The reference names types of C, of Python and of the stubs, which have no page here.
nitpick_ignore_regex = [("py:.*", r".*"), ("c:identifier", r"CU\w+|\w+_t|CU\w+_st")]
autodoc_member_order = "bysource"
add_module_names = False

# A Sphinx that did not come with furo renders the same pages in its own theme.
html_theme = "furo" if importlib.util.find_spec("furo") else "alabaster"
html_title = "Foundry"
html_static_path = ["_static"]
html_css_files = ["foundry.css"]
html_show_copyright = False
html_copy_source = False
