package main

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBuildTags fails if a build tag does not exclude the drivers of its backend, or excludes others. `make sizes`
// compiles these builds.
func TestBuildTags(t *testing.T) {
	drivers := map[string][]string{
		"no_etcd":      {"go.etcd.io/etcd/"},
		"no_mongodb":   {"go.mongodb.org/"},
		"no_nats":      {"github.com/nats-io/"},
		"no_postgres":  {"github.com/jackc/pgx/"},
		"no_raftlog":   {"go.etcd.io/raft/"},
		"no_redis":     {"github.com/redis/go-redis/"},
		"no_rethinkdb": {"gopkg.in/rethinkdb/"},
	}
	drivers["no_changefeed"] = slices.Concat(drivers["no_mongodb"], drivers["no_nats"], drivers["no_postgres"],
		drivers["no_redis"], drivers["no_rethinkdb"])
	for tag, excluded := range drivers {
		packages, err := exec.Command("go", "list", "-deps", "-tags", tag, ".").Output()
		require.NoError(t, err)
		for _, driver := range slices.Concat(slices.Collect(maps.Values(drivers))...) {
			linked := strings.Contains("\n"+string(packages), "\n"+driver)
			assert.Equal(t, !slices.Contains(excluded, driver), linked, "%s: %s", tag, driver)
		}
	}
}
