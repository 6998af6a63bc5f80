from benchmarks.command import run

run("benchmarks.optimizer")
