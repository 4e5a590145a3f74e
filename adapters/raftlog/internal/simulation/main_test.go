package simulation

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // most allocations of a run are short-lived
	goleak.VerifyTestMain(m)
}
