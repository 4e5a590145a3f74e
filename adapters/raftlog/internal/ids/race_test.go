//go:build race

package ids

func init() { race = true }
