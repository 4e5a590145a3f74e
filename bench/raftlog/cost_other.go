//go:build !linux

package main

// processUsage returns zeros: the benchmark reads the processor time, calls and switches on Linux only.
func processUsage() usage { return usage{} }
