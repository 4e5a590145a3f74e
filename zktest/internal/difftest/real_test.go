package difftest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/ensemble"
)

// realServer starts an Apache ZooKeeper server, alone and empty, and returns its
// address. With ZKTEST_REAL=required a machine that has none fails the test.
func realServer(t *testing.T, sweep time.Duration) string {
	t.Helper()
	// What zoo.cfg cannot say: how often it looks for containers and old nodes.
	t.Setenv("JDK_JAVA_OPTIONS", fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", sweep.Milliseconds()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{
		Backend: ensemble.Process, TickTime: 200 * time.Millisecond,
		Properties: map[string]string{"forceSync": "no", "extendedTypesEnabled": "true", "maxSessionTimeout": "60000"},
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
	return e.Addr(0)
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
