// Package difftest compares zktest with Apache ZooKeeper: it sends the same requests to both servers,
// and requires the same packets in return. It is separate from package zktest because it needs the
// server, and make unit skips packages that need servers.
package difftest

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

var (
	steps = flag.Int("diff.steps", 6000, "requests of a random run")
	seed  = flag.Uint64("diff.seed", 1, "seed of the random run")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCompare_RandomRequestsHaveEqualReplies checks that no reply or event differs in a long random sequence of
// requests of four clients.
func TestCompare_RandomRequestsHaveEqualReplies(t *testing.T) {
	p := newPair(t, time.Hour) // no server sweeps during the test, because the times of sweeps would differ
	t.Logf("seed %d, %d requests (-diff.seed, -diff.steps)", *seed, *steps)
	g := &generator{r: rand.New(rand.NewPCG(*seed, 1))}
	const clients = 4
	for k := range clients {
		p.connectClient(k, false, 30*time.Second)
	}
	sent := 0
	for sent < *steps {
		k := g.r.IntN(clients)
		switch x := g.r.IntN(200); {
		case x == 0: // close the session
			p.compare(k, true, wire.Request{Header: wire.Header{Op: wire.CloseSession}})
			p.connectClient(k, false, 30*time.Second)
		case x <= 2: // close the connection and resume the session
			p.connectClient(k, true, 30*time.Second)
			p.compare(k, false, g.randomSetWatches(p.targets[0].clients[k].zxid-p.targets[0].zxid0))
		default:
			batch := make([]wire.Request, 1+g.r.IntN(4))
			for i := range batch {
				batch[i] = g.randomRequest(p.targets[0].clients[k].zxid - p.targets[0].zxid0)
			}
			// Send an auth request alone, because the real server may answer it before earlier
			// requests.
			if i := slices.IndexFunc(batch, func(r wire.Request) bool { return r.Op == wire.Auth }); i >= 0 {
				batch = batch[i : i+1]
			}
			p.compare(k, false, batch...)
			sent += len(batch)
		}
	}
	t.Logf("the largest zxid is %s", p.targets[0].relativeZxid(p.targets[0].clients[0].zxid))
}
