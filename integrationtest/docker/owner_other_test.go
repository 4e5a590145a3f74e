//go:build !linux

package docker_test

// Only Linux stops child processes together with their parent, so owner_linux_test.go contains this
// test.

const ownerVariable = "ENSEMBLE_TEST_OWNER_BACKEND"

func runOwner() {}
