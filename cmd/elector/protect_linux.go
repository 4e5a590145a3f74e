package main

import "golang.org/x/sys/unix"

// protectMemory prevents processes of the same user, such as the program and the commands that elector runs, from
// reading the environment and the memory of this process. The kernel then also writes no core dump of this process.
// Processes of root can still read the memory, and the processes that this process starts are not protected.
func protectMemory() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
