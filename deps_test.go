package leaderelection_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDependencies shows that a program which imports this package links the
// standard library, this module and the ZooKeeper client, and nothing else.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "github.com/go-zookeeper/zk")
	for _, p := range packages {
		switch {
		case p == "github.com/go-zookeeper/zk", p == module, strings.HasPrefix(p, module+"/internal/"):
		default:
			t.Errorf("linked: %s", p)
		}
	}
}

const module = "github.com/go-leaderelection/leaderelection"
