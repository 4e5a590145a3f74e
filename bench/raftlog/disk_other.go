//go:build !linux

package main

import "os"

// onDisk cannot tell here.
func onDisk(string) error { return nil }

func syncData(f *os.File) error { return f.Sync() }
