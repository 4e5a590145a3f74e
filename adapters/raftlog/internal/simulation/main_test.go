// Package simulation tests clusters of complete peers in virtual time. The core, the log on a disk that
// loses power, the snapshot files, the replica and a state machine are the real ones. The network, the
// clocks, the speed of the disks and the clients are simulated. One seed determines everything that
// happens in a run, so that every failure can be repeated.
//
// The package consists of tests:
//
//   - harness_test.go: virtual time
//   - faults_test.go, scenarios_test.go: random faults, and constructed sequences of faults
//   - checker_test.go: what must be true at every moment
//   - recovery_test.go: what must become true after the faults
package simulation

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // because most allocations of a run are short-lived
	goleak.VerifyTestMain(m)
}
