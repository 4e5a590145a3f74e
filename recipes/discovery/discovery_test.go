package discovery

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDiscovery_ConvergesAfterRandomFaults registers, updates and closes instances at random, while the server
// loses connections, sessions, requests and replies. In the end, an open registration must have a znode of its
// session with its newest content, a closed registration must have no znode, and each provider must agree with the
// tree.
func TestDiscovery_ConvergesAfterRandomFaults(t *testing.T) {
	for seed := range uint64(bubble.Runs(100)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) { runRandomFaults(w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func runRandomFaults(w *bubble.Test, random *rand.Rand) {
	var clients []*Discovery
	var providers []*Provider
	for range 3 {
		d := connect(w)
		clients = append(clients, d)
		providers = append(providers, newProvider(w, d))
	}
	operator := connect(w)
	open := map[string]*Registration{}
	client := map[string]*Discovery{}
	hooks := []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After}
	for step := range 40 {
		d := clients[random.IntN(len(clients))]
		what := random.IntN(10)
		if what >= 5 && what <= 8 && d.setup.Conn.SessionID() == 0 {
			continue // skip the fault, because the session 0 would select all sessions
		}
		switch what {
		case 0, 1: // register an instance
			i := instance(fmt.Sprint("i", step))
			if random.IntN(4) == 0 {
				i.Type = Static
			}
			registered := startRegister(w, d, i)
			bubble.Advance(time.Duration(random.IntN(300)) * time.Millisecond)
			r := <-registered
			w.Cleanup(func() { closeRepeatedly(w, r) })
			open[i.ID], client[i.ID] = r, d
		case 2, 3: // update an instance
			for _, id := range sortedKeys(open) {
				i := open[id].Instance()
				i.Port, i.Disabled = step, random.IntN(3) == 0
				i.Payload = json.RawMessage(fmt.Sprint(step))
				go func() { _ = open[id].Update(w.Context(), i) }()
				synctest.Wait()
				if random.IntN(2) == 0 {
					break
				}
			}
		case 4: // close a registration
			for _, id := range sortedKeys(open) {
				require.NoError(w, bubble.Repeated(open[id].Close))
				delete(open, id)
				break
			}
		case 5:
			w.Server.DropConnections(d.setup.Conn.SessionID())
		case 6:
			if random.IntN(2) == 0 {
				w.Server.DropConnections(d.setup.Conn.SessionID())
			}
			_ = w.Server.ExpireSession(d.setup.Conn.SessionID())
		case 7, 8: // lose a reply or a request
			ops := []zktest.Op{zktest.OpCreate, zktest.OpSetData, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpExists, zktest.OpSync}
			hooks[random.IntN(2)](zktest.Match{Op: ops[random.IntN(len(ops))], Session: d.setup.Conn.SessionID(), Nth: 1 + random.IntN(2)}, zktest.Cut)
		case 9: // another client deletes an instance, and creates another child
			for _, id := range sortedKeys(open) {
				err := operator.setup.Conn.Delete(shopPath+"/"+id, -1)
				require.NoError(w, firstErrorExcept(zk.ErrNoNode, err))
				break
			}
			_, err := operator.setup.Conn.Create(shopPath+"/"+fmt.Sprint("foreign", step), []byte("?"), 0, operator.setup.ACL)
			require.NoError(w, firstErrorExcept(zk.ErrNoNode, err))
		}
		bubble.Advance(time.Duration(random.IntN(1500)) * time.Millisecond)
	}
	bubble.Advance(2 * time.Minute)

	var want []Instance
	for _, id := range sortedKeys(open) {
		i := open[id].Instance()
		data, stat, err := operator.setup.Conn.Get(shopPath + "/" + id)
		require.NoError(w, err, "%s\n%s", id, w.Server.Tree())
		if i.Type == Dynamic {
			require.Equal(w, client[id].setup.Conn.SessionID(), stat.EphemeralOwner)
		}
		got, err := decode(data)
		require.NoError(w, err)
		require.Equal(w, i, got)
		require.Equal(w, Status{State: Registered}, newestStatus(open[id].Status()))
		if !i.Disabled {
			want = append(want, i)
		}
	}
	require.Equal(w, len(open), strings.Count(w.Server.Tree(), "\n      i"), w.Server.Tree())
	for n, p := range providers {
		got, err := p.Instances()
		require.NoError(w, err)
		require.Equal(w, want, slices.Clone(got), "provider %d\n%s", n, w.Server.Tree())
		require.Len(w, p.list.Unreadable, strings.Count(w.Server.Tree(), "\n      foreign"))
	}
	for _, id := range sortedKeys(open) {
		require.NoError(w, bubble.Repeated(open[id].Close))
	}
	require.Zero(w, strings.Count(w.Server.Tree(), "\n      i"), w.Server.Tree())
}

// newestStatus returns the status in the channel c, or a status with the state Pending if the
// channel is empty.
func newestStatus(c <-chan Status) Status {
	select {
	case s := <-c:
		return s
	default:
		return Status{State: Pending}
	}
}

func sortedKeys(m map[string]*Registration) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
