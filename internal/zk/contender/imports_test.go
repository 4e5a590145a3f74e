package contender

import (
	"go/build"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImports_AreDeterministic checks that the state machine imports no package that can make its outputs
// depend on anything except its inputs, such as the time, random numbers or other goroutines. It may use
// durations of package time, the state of a connection, and the errors of package connection and of the
// client library.
func TestImports_AreDeterministic(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	require.Equal(t, []string{
		"cmp", "encoding/hex", "errors", "fmt",
		"github.com/go-leaderelection/leaderelection/internal/zk/connection", "github.com/go-zookeeper/zk",
		"math", "path", "slices", "strconv", "strings", "time",
	}, slices.Sorted(slices.Values(p.Imports)))
	identifier := regexp.MustCompile(`\b(connection|time|zk)\.[A-Z]\w*`)
	allowed := []string{
		"connection.DoubtDelay", "connection.ErrAmbiguous", "connection.ErrConnClosed", "connection.ErrDeleted", "connection.ErrElectionOver",
		"connection.ErrNodeExhausted", "connection.ErrSessionExpired", "connection.ErrUnreachable", "connection.IgnoreNoNode", "connection.State",
		"time.Duration", "time.Millisecond", "time.Second", "zk.ErrNoNode", "zk.ErrNodeExists",
	}
	for _, file := range p.GoFiles {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, used := range identifier.FindAllString(string(source), -1) {
			require.Contains(t, allowed, used, file)
		}
	}
}
