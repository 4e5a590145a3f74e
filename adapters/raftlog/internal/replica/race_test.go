//go:build race

package replica

func init() { race = true }
