"""Becomes the parent of every orphan below it, and then the program in its arguments.

So that program can reap, and if need be end, what a killed server or test left running.
"""

import ctypes
import os
import sys

PR_SET_CHILD_SUBREAPER = 36

if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
    sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
