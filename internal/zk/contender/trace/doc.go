// Package trace records the steps of contenders and replays them.
//
// Package contender claims that a contender is a deterministic state machine: the same inputs
// lead to the same outputs, without regard to time, other goroutines and other contenders. This
// package tests the claim with the inputs of real runs. A [Recorder] records every step of every
// contender of a test binary: the state of the connection, the input, the answers of the
// contender's Policy, and the outputs. It then passes the recorded inputs to a new contender
// without a connection, and compares the outputs.
//
// A TestMain that runs [Tests] records all contenders of its package, and fails if a replay
// differs. With the environment variable [DirVariable], the steps are also written to files,
// which the command in the directory replay replays in another process:
//
//	LEADERELECTION_TRACE=/tmp/steps go test -count 1 -cpu 1 -v ./recipes/lock
//	go run ./internal/zk/contender/trace/replay /tmp/steps
package trace
