//go:build !linux

package disk

import "os"

// allocate does nothing, because this system has no portable call that reserves space.
func allocate(*os.File, int64) error { return nil }

func datasync(f *os.File) error { return f.Sync() }
