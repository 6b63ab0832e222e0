# SPDX-License-Identifier: Apache-2.0
import logging
import sys

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")


def init_logger(name):
    return logging.getLogger(name)
