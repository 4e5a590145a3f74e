//go:build !linux

package serverdir

func free(string) uint64 { return 0 }
