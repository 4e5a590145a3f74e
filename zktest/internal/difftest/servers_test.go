package difftest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// startEnsemble starts Apache ZooKeeper servers. If they are not installed, the test is skipped, or
// fails as testenv.SkipMissing describes.
func startEnsemble(t *testing.T, cfg ensemble.Config) *ensemble.Ensemble {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg.Backend = ensemble.Process
	e, err := ensemble.Start(ctx, cfg)
	if err != nil {
		testenv.SkipMissing(t, "Apache ZooKeeper", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of the log of server 0:\n%s", e.Log(0))
		}
		assert.NoError(t, e.Close())
	})
	return e
}

// startRealServer starts a single Apache ZooKeeper server. more are additional lines of zoo.cfg.
func startRealServer(t *testing.T, sweep time.Duration, more map[string]string) *ensemble.Ensemble {
	t.Helper()
	// Set the interval between sweeps by a property of Java, because zoo.cfg has none for it.
	t.Setenv("JDK_JAVA_OPTIONS", fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", sweep.Milliseconds()))
	properties := map[string]string{"forceSync": "no", "extendedTypesEnabled": "true", "maxSessionTimeout": "60000"}
	maps.Copy(properties, more)
	return startEnsemble(t, ensemble.Config{TickTime: 200 * time.Millisecond, Properties: properties})
}

// startEmbeddedServer starts a zktest server with the settings of startRealServer.
func startEmbeddedServer(t *testing.T, sweep time.Duration) *zktest.Server {
	return zktest.Start(t, zktest.WithTick(200*time.Millisecond), zktest.WithSweep(sweep),
		zktest.WithSessionTimeouts(400*time.Millisecond, time.Minute))
}

// sendFourLetter returns the answer to a four-letter word. It is empty if the request fails.
func sendFourLetter(addr, word string) string {
	nc, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(nc, word); err != nil {
		return ""
	}
	b, _ := io.ReadAll(nc)
	return string(b)
}
