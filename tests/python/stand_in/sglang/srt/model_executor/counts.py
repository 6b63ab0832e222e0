# SPDX-License-Identifier: Apache-2.0
COUNTS = {"profile": 0, "capture": 0, "dummy_run": 0}
