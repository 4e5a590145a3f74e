//go:build race

package dedup

func init() { race = true }
