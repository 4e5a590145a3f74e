//go:build race

package contender

func init() { raceDetector = true }
