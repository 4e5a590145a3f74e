//go:build !linux

package docker_test

// Only Linux stops child processes together with their parent: see owner_linux_test.go.

const ownerVariable = "ENSEMBLE_TEST_OWNER_BACKEND"

func runOwner() {}
