package bubble

import "testing"

// raceDetector is true if the race detector is enabled.
var raceDetector bool

// Runs returns how many of n random runs a test makes. The race detector makes a run twenty times as slow, and finds a
// race in the first runs or in other tests. So it is one of eight with the detector, and make test makes all of them
// without it. It is one of eight with -short as well, with which make unit runs the tests.
func Runs(n int) int {
	if raceDetector || testing.Short() {
		return max(1, n/8)
	}
	return n
}
