//go:build !linux

package main

// processUsage returns nothing: the benchmark counts calls and switches on Linux only.
func processUsage() usage { return usage{} }
