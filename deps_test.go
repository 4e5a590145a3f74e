package leaderelection_test

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDependencies shows that a program which imports these packages links the
// standard library, this module and the ZooKeeper client, and nothing else; what the
// command elector needs in particular.
func TestDependencies(t *testing.T) {
	for _, name := range []string{"", "/elector", "/electiontest", "/zkdial", "/adapters/console", "/adapters/changefeed", "/adapters/changefeed/memory"} {
		packages := linked(t, name)
		require.Contains(t, packages, "github.com/go-zookeeper/zk")
		for _, p := range packages {
			switch {
			case p == "github.com/go-zookeeper/zk", p == module, p == module+name, strings.HasPrefix(p, module+"/internal/"):
			case strings.HasPrefix(name, "/adapters/changefeed") &&
				(p == module+"/adapters/changefeed" || p == module+"/adapters/changefeed/internal/step"):
			default:
				t.Errorf("%s links %s", module+name, p)
			}
		}
	}
}

// TestDemoDependencies shows that the first thing a new user compiles, make demo, links only
// the client library, the election and the embedded servers.
func TestDemoDependencies(t *testing.T) {
	for _, p := range linked(t, "/demo") {
		switch own, isOwn := strings.CutPrefix(p, module); {
		case p == "github.com/go-zookeeper/zk":
		case isOwn && (own == "" || own == "/demo"):
		case isOwn && (strings.HasPrefix(own, "/internal/") || strings.HasPrefix(own, "/zktest")):
		default:
			t.Errorf("demo links %s", p)
		}
	}
}

// TestDemoModules shows that the list of modules with which make demo compiles has the versions of
// go.mod, and nothing more than the demo needs.
func TestDemoModules(t *testing.T) {
	t.Setenv("GOWORK", "off")
	modules := func(flags ...string) string {
		args := append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}} {{.GoVersion}}{{end}}"}, flags...)
		out, err := exec.Command("go", append(args, module+"/demo")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.Equal(t, modules(), modules("-modfile=demo/demo.mod"), "correct demo/demo.mod and demo.sum")
	out, err := exec.Command("go", "list", "-m", "-modfile=demo/demo.mod", "all").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Len(t, strings.Split(strings.TrimSpace(string(out)), "\n"), 2, "%s", out)
}

// TestBuildTags shows that each build tag excludes its backend's drivers from the command elector,
// and only them. `make sizes` compiles these builds.
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
		packages := strings.Join(linked(t, "/cmd/elector", "-tags", tag), "\n")
		for _, driver := range slices.Concat(slices.Collect(maps.Values(drivers))...) {
			assert.Equal(t, !slices.Contains(excluded, driver), strings.Contains(packages, driver), "%s: %s", tag, driver)
		}
	}
}

// linked returns the packages that a package of this module links, without those of the
// standard library.
func linked(t *testing.T, name string, flags ...string) []string {
	t.Helper()
	args := append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, flags...)
	out, err := exec.Command("go", append(args, module+name)...).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// TestOwnBackends shows that the drivers of other systems are linked by those who import
// their adapters, by what opens stores by address, and by nobody else: not by the root and
// the recipes, by what runs on any backend, or by what others are tested with.
func TestOwnBackends(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, module+"/...").Output()
	require.NoError(t, err)
	byAddress := []string{"/adapters/changefeed/storeurl", "/examples/changefeed", "/cmd/elector"}
	peers := []string{"/adapters/raftlog", "/adapters/raftlog/offline", "/cmd/raftlog", "/examples/raftlog-kv"} // clients do without the engine
	for _, internal := range []string{"core", "entry", "filelog", "identity", "replica", "snapshot"} {
		peers = append(peers, "/adapters/raftlog/internal/"+internal)
	}
	for driver, allowed := range map[string][]string{
		"go.etcd.io/etcd/":            {"/adapters/etcd", "/adapters/changefeed/etcd", "/internal/testenv/etcdserver"},
		"go.etcd.io/raft/":            peers,
		"github.com/jackc/pgx/":       {"/adapters/changefeed/postgres"},
		"github.com/redis/go-redis/":  {"/adapters/changefeed/redis"},
		"github.com/nats-io/nats.go":  {"/adapters/changefeed/nats"},
		"go.mongodb.org/":             {"/adapters/changefeed/mongodb"},
		"gopkg.in/rethinkdb/":         {"/adapters/changefeed/rethinkdb"},
		"github.com/gdamore/tcell/v3": {"/cmd/elector/top", "/cmd/elector"},
	} {
		linked := false
		for line := range strings.Lines(string(out)) {
			name, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.Contains(deps, driver) {
				continue
			}
			linked = true
			if name = strings.TrimPrefix(name, module); !slices.Contains(append(allowed, byAddress...), name) {
				t.Errorf("%s links %s", name, driver)
			}
		}
		require.True(t, linked, driver)
	}
}

const module = "github.com/go-leaderelection/leaderelection"
