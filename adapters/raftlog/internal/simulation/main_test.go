package simulation

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // most of what a run allocates is soon forgotten
	goleak.VerifyTestMain(m)
}
