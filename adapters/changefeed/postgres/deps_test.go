package postgres_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDependencies: a program that imports this store links no driver of another.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "github.com/jackc/pgx/v5\n")
	for _, other := range []string{"redis", "etcd", "nats-io", "mongo", "rethinkdb", "testify"} {
		require.NotContains(t, string(out), other)
	}
}
