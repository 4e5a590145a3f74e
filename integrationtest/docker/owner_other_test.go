//go:build !linux

package docker_test

// The test for killed owners is in owner_linux_test.go, because only Linux stops child processes together with their
// parent.

const ownerVariable = "ENSEMBLE_TEST_OWNER_BACKEND"

func runOwner() {}
