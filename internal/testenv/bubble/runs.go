package bubble

import "testing"

// raceDetector is true if the program was built with the race detector.
var raceDetector bool

// Runs returns how many of n random runs a test makes. With the race detector, which makes a run twenty times as
// slow and finds races in the first runs or in other tests, Runs returns one eighth of n; make test also makes all
// runs without the detector. With -short, as in make unit, Runs returns one eighth of n, too.
func Runs(n int) int {
	if raceDetector || testing.Short() {
		return max(1, n/8)
	}
	return n
}
