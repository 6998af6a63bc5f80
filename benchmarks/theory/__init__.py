"""What docs/theory claims, measured: errors and memory of second derivatives, learning the horizon.

``figures`` draws the small figures; ``errors`` measures the paper's Table 1 and ``memory`` its
Table 2 on more methods and sizes than ``snopt paper`` does; ``horizon`` learns the horizon on
images.
"""

COMMANDS = ("figures", "errors", "memory", "horizon")
