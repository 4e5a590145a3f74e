//go:build !linux

package docker_test

// Only Linux ends children with their parent: see orphan_test.go.

const orphanVariable = "ENSEMBLE_TEST_BACKEND_OF_ORPHAN"

func runOrphan() {}
