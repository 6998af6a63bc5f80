from benchmarks.command import run

run("benchmarks.peers")
