package difftest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// realServer starts an Apache ZooKeeper server, alone and empty, with more lines for
// its zoo.cfg. With ZKTEST_REAL=required a machine that has none fails the test.
func realServer(t *testing.T, sweep time.Duration, more map[string]string) *ensemble.Ensemble {
	t.Helper()
	// What zoo.cfg cannot say: how often it looks for containers and old nodes.
	t.Setenv("JDK_JAVA_OPTIONS", fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", sweep.Milliseconds()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	properties := map[string]string{"forceSync": "no", "extendedTypesEnabled": "true", "maxSessionTimeout": "60000"}
	maps.Copy(properties, more)
	e, err := ensemble.Start(ctx, ensemble.Config{
		Backend: ensemble.Process, TickTime: 200 * time.Millisecond, Properties: properties,
	})
	if err != nil {
		if os.Getenv("ZKTEST_REAL") == "required" {
			t.Fatalf("no Apache ZooKeeper to compare with: %v", err)
		}
		t.Skipf("NOT COMPARED with Apache ZooKeeper: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := e.Log(0)
			t.Logf("the end of the server's log:\n%s", log[max(0, len(log)-4000):])
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// word asks a four-letter word.
func word(addr, w string) string {
	nc, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(nc, w); err != nil {
		return ""
	}
	b, _ := io.ReadAll(nc)
	return string(b)
}
