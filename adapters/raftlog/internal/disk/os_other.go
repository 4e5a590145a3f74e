//go:build !linux

package disk

import "os"

// allocate reserves nothing on this system.
func allocate(*os.File, int64) error { return nil }

func datasync(f *os.File) error { return f.Sync() }
