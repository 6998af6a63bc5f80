from benchmarks.command import run

run("benchmarks.engine")
