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

// TestBuildTags_ExcludeDrivers checks that each build tag excludes the drivers of its backend from the command
// elector, and no others. "make sizes" compiles the builds with these tags.
func TestBuildTags_ExcludeDrivers(t *testing.T) {
	drivers := map[string][]string{
		"no_etcd":       {"go.etcd.io/etcd/"},
		"no_kubernetes": {"k8s.io/"},
		"no_mongodb":    {"go.mongodb.org/"},
		"no_mysql":      {"github.com/go-sql-driver/mysql"},
		"no_nats":       {"github.com/nats-io/"},
		"no_postgres":   {"github.com/jackc/pgx/"},
		"no_raftlog":    {"go.etcd.io/raft/"},
		"no_redis":      {"github.com/redis/go-redis/"},
	}
	drivers["no_changefeed"] = slices.Concat(drivers["no_kubernetes"], drivers["no_mongodb"], drivers["no_mysql"], drivers["no_nats"], drivers["no_postgres"],
		drivers["no_redis"])
	optional := map[string][]string{"rethinkdb": {"gopkg.in/rethinkdb/"}}
	list := func(tag string) string {
		packages, err := exec.Command("go", "list", "-deps", "-tags", tag, "./cmd/elector").Output()
		require.NoError(t, err)
		return "\n" + string(packages)
	}
	standard := list("")
	for tag, added := range optional {
		for _, driver := range added {
			assert.NotContains(t, standard, "\n"+driver, "the default build")
			assert.Contains(t, list(tag), "\n"+driver, tag)
		}
	}
	assert.NotContains(t, standard, "\ngithub.com/spf13/cobra/doc", "the generator of manual pages is for tests")
	for tag, excluded := range drivers {
		packages := list(tag)
		for _, driver := range slices.Concat(slices.Collect(maps.Values(drivers))...) {
			linked := strings.Contains(packages, "\n"+driver)
			assert.Equal(t, !slices.Contains(excluded, driver), linked, "%s: %s", tag, driver)
		}
	}
}
