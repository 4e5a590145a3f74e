package leaderelection_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDependencies shows that a program which imports these packages links the
// standard library, this module and the ZooKeeper client, and nothing else; what the
// command elector needs in particular.
func TestDependencies(t *testing.T) {
	for _, name := range []string{"", "/elector", "/electiontest", "/adapters/console", "/adapters/changefeed", "/adapters/changefeed/memory"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+name).Output()
		require.NoError(t, err)
		packages := strings.Fields(string(out))
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

// TestOwnBackends shows that etcd is linked by those who import its adapters, and by nobody
// else: the root and the recipes, what runs on any backend, and what others are tested with.
func TestOwnBackends(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, module+"/...").Output()
	require.NoError(t, err)
	links := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(deps, "go.etcd.io/") {
			links[strings.TrimPrefix(name, module)] = true
		}
	}
	require.True(t, links["/adapters/etcd"])
	for name := range links {
		switch name {
		case "/adapters/etcd", "/adapters/changefeed/etcd", "/internal/etcdserver", "/cmd/elector":
		default:
			t.Errorf("%s links etcd", name)
		}
	}
}

const module = "github.com/go-leaderelection/leaderelection"
