"""Peak memory of a piece of work, in a fresh process: that of the package."""

from snopt.paper.peak import in_fresh_process, rise

__all__ = ["in_fresh_process", "rise"]
