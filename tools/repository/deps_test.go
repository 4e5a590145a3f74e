package repository_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkflows fails if a workflow uses an action by a tag, which its owner can move, a tool whose
// version is not fixed, or a checkout that keeps the token of the workflow.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	action := regexp.MustCompile(`uses: (\S+?)@(\S+)(.*)\n(.*)`)
	pinned := regexp.MustCompile(`^[0-9a-f]{40}$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range action.FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, pinned, m[2], "%s: %s: not the hash of a commit", file, m[1])
			require.Regexp(t, `^ # v\d+\.\d+\.\d+$`, m[3], "%s: %s: the comment does not name the tag", file, m[1])
			if m[1] == "actions/checkout" {
				require.Contains(t, m[4], "persist-credentials: false", file)
			}
		}
		require.NotContains(t, string(text), "@latest", file)
		require.NotContains(t, string(text), "~>", file)
	}
}

// TestDependencies fails if a program that imports one of these packages links anything except the
// standard library, this module and the ZooKeeper client. The other requirements of the module are
// those of tests.
func TestDependencies(t *testing.T) {
	for _, name := range []string{"", "/elector", "/electiontest", "/zkdial", "/adapters/console", "/adapters/changefeed", "/adapters/changefeed/memory"} {
		packages := linked(t, name)
		require.Contains(t, packages, "github.com/go-zookeeper/zk")
		for _, p := range packages {
			switch {
			case p == "github.com/go-zookeeper/zk", p == module, p == module+"/event", p == module+name, strings.HasPrefix(p, module+"/internal/"):
			case strings.HasPrefix(name, "/adapters/") && p == module+"/candidacy":
			case strings.HasPrefix(name, "/adapters/changefeed") &&
				(p == module+"/adapters/changefeed" || p == module+"/adapters/changefeed/internal/protocol"):
			default:
				t.Errorf("%s links %s", module+name, p)
			}
		}
	}
}

// TestDemoDependencies fails if the demo, which new users compile first, links anything except the
// client library, the election, its dialer and the embedded servers.
func TestDemoDependencies(t *testing.T) {
	for _, p := range linked(t, "/demo") {
		switch own, isOwn := strings.CutPrefix(p, module); {
		case p == "github.com/go-zookeeper/zk":
		case isOwn && (own == "" || own == "/event" || own == "/demo" || own == "/zkdial"):
		case isOwn && (strings.HasPrefix(own, "/internal/") || strings.HasPrefix(own, "/zktest")):
		default:
			t.Errorf("demo links %s", p)
		}
	}
}

// linked returns the packages that a package of this module links, without those of the
// standard library.
func linked(t *testing.T, name string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+name).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

const module = "github.com/go-leaderelection/leaderelection"
