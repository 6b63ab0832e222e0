# SPDX-License-Identifier: Apache-2.0
_manager = None
