//go:build race

package bubble

func init() { raceDetector = true }
