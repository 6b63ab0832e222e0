# SPDX-License-Identifier: Apache-2.0
"""The environment variables that the library and this package read; the library has the list."""
import collections
import ctypes

from . import _lib
from ._lib import Error, Variable as _Variable, lib

Variable = collections.namedtuple("Variable", "name type default allowed meaning")


def variables():
    """Every variable as a Variable; all fields are str.

    name; type (FLAG, COUNT, SIZE, CHOICE, FILE, LIST, CODE, DIR, BASE, TEXT); default ("" if there
    is none); the allowed values; and the meaning.
    """
    found, entry = [], _Variable()
    while True:
        try:
            lib.fdry_variable_at(len(found), ctypes.byref(entry))
        except Error as e:
            if e.name != "FDRY_E_RANGE":
                raise
            return found
        found.append(Variable(*(getattr(entry, field).decode() for field, _ in entry._fields_)))


def check_variables(name=None):
    """Raise Error (FDRY_E_ENV) if the variable of that name, or any (None), has a value that is
    invalid.
    """
    lib.fdry_variable_check(None if name is None else _lib.text(name))
