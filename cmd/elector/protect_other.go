//go:build !linux

package main

// protectMemory does nothing on this system.
func protectMemory() error { return nil }
