package client

// Calls to peers in memory that fail as they are told, in bubbles of testing/synctest.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

var a, b, c = api.Peer{ID: "a", Addr: "a:1"}, api.Peer{ID: "b", Addr: "b:1"}, api.Peer{ID: "c", Addr: "c:1"}

type world struct {
	*testing.T
	cluster *rpctest.Cluster
	network *rpctest.Network
	client  *Client
}

// peer is the service of p.
func (w *world) peer(p api.Peer) *rpctest.Peer { return w.cluster.Peer(p) }

// calls is how often all peers were called.
func (w *world) calls(call string) (n int) {
	for _, p := range []api.Peer{a, b, c} {
		n += w.peer(p).Calls(call)
	}
	return n
}

// within is a context of that length.
func (w *world) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), d)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) newClient(cfg Config) *Client {
	cfg.Cluster = "test"
	cfg, err := cfg.complete()
	require.NoError(w, err)
	jitter := uint32(1)
	var lock sync.Mutex
	return newClient(cfg, w.network.Connect, func() float64 {
		lock.Lock()
		defer lock.Unlock()
		jitter = jitter*1664525 + 1013904223
		return float64(jitter>>8) / (1 << 24)
	})
}

// inBubble has f run with a cluster of a, b and c, which a leads, and a client that knows
// those of seeds and does not refresh.
func inBubble(t *testing.T, seeds []api.Peer, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		cluster := rpctest.New(a, b, c)
		w := &world{T: t, cluster: cluster, network: rpctest.NewNetwork(cluster)}
		w.client = w.newClient(Config{Peers: seeds, Refresh: -1})
		defer w.network.Close()
		defer w.client.Close()
		f(w)
	})
}

var all = []api.Peer{a, b, c}

func TestPropose(t *testing.T) {
	inBubble(t, []api.Peer{b}, func(w *world) {
		begun := time.Now()
		for i := range uint64(3) {
			index, err := w.client.Propose(w.Context(), requestid.New(), []byte("x"))
			require.NoError(t, err)
			require.Equal(t, i+1, index)
		}
		require.Zero(t, time.Since(begun), "the one who leads is believed at once")
		require.Equal(t, 1, w.peer(b).Calls("Propose"), "the leader is remembered")
		require.Equal(t, 3, w.peer(a).Calls("Propose"))
		require.Equal(t, 1, w.network.Dials("a"), "one connection for all")
	})
}

// TestNoLeader: calls neither give up nor hammer.
func TestNoLeader(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Lead(api.Peer{})
		_, err := w.client.Propose(w.within(30*time.Second), requestid.New(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, api.ErrNotLeader)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "nobody has taken it")
		n := w.calls("Propose")
		require.LessOrEqual(t, n, 200, "one in half a pause")
		require.GreaterOrEqual(t, n, 66)
		for _, p := range all {
			require.Greater(t, w.peer(p).Calls("Propose"), 20, "all are tried")
		}
		go func() {
			time.Sleep(time.Second)
			w.cluster.Lead(c)
		}()
		begun := time.Now()
		_, err = w.client.Propose(w.Context(), requestid.New(), nil)
		require.NoError(t, err)
		require.Less(t, time.Since(begun), 1500*time.Millisecond)
	})
}

// TestRedirectLoop has two peers that each say that the other leads.
func TestRedirectLoop(t *testing.T) {
	inBubble(t, []api.Peer{a, b}, func(w *world) {
		point := func(to api.Peer) func(context.Context, string) error {
			return func(_ context.Context, call string) error {
				switch {
				case call != "Propose":
					return nil
				case w.calls("Propose") > 1000:
					return api.ErrStale // enough
				}
				return &api.NotLeaderError{Leader: to}
			}
		}
		w.peer(a).Before(point(b))
		w.peer(b).Before(point(a))
		_, err := w.client.Propose(w.within(3*time.Second), requestid.New(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, w.calls("Propose"), 21*(1+redirects))
	})
}

// TestLostReply: the update is applied, the reply is lost, and the same ID comes again.
func TestLostReply(t *testing.T) {
	for name, lose := range map[string]func(w *world) error{
		"connection": func(w *world) error { w.network.Cut("a"); return io.EOF },
		"unknown":    func(*world) error { return api.ErrUnknownOutcome },
		"other":      func(*world) error { return errors.New("broken") },
		"leader":     func(w *world) error { w.cluster.Lead(b); return &api.NotLeaderError{Leader: b} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, all, func(w *world) {
				w.peer(a).After(func(context.Context, string) error {
					w.peer(a).After(nil)
					return lose(w)
				})
				id := requestid.New()
				index, err := w.client.Propose(w.within(time.Minute), id, []byte("x"))
				require.NoError(t, err)
				require.EqualValues(t, 1, index)
				require.Len(t, w.cluster.Entries(id), 1)
				require.LessOrEqual(t, w.calls("Propose"), 4)
			})
		})
	}
}

// TestPendingRepeated (Z8): an update waits, the connection is lost, the client repeats it,
// and others do as well: all get the index.
func TestPendingRepeated(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Hold()
		id := requestid.New()
		other := w.newClient(Config{Peers: all, Refresh: -1})
		defer other.Close()
		var calls sync.WaitGroup
		for _, client := range []*Client{w.client, w.client, other} {
			calls.Go(func() {
				index, err := client.Propose(w.within(time.Minute), id, []byte("x"))
				require.NoError(t, err)
				require.EqualValues(t, 1, index)
			})
		}
		synctest.Wait()
		require.Equal(t, 2, w.network.Cut("a"))
		time.Sleep(5 * time.Second)
		require.Equal(t, 6, w.peer(a).Calls("Propose"), "repeated once, after the loss")
		w.cluster.Release()
		calls.Wait()
		require.Len(t, w.cluster.Entries(id), 1)
	})
}

func TestOutcomes(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Hold()
		_, err := w.client.Propose(w.within(time.Second), requestid.New(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		_, err = w.client.ChangePeers(w.within(time.Second), requestid.New(), all)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		// After an attempt that may have been applied, what others say is not all.
		w.peer(a).Before(func(context.Context, string) error {
			w.peer(a).Before(nil)
			w.peer(b).Before(func(context.Context, string) error { return api.ErrTooManyIDs })
			return api.ErrUnknownOutcome
		})
		_, err = w.client.Propose(w.within(time.Minute), requestid.New(), nil)
		require.ErrorIs(t, err, api.ErrTooManyIDs)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		for _, p := range all {
			w.network.Down(p.ID, errors.New("no route"))
		}
		synctest.Wait() // until the client knows that its connections have ended
		_, err = w.client.Propose(w.within(10*time.Second), requestid.New(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no route")
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "it was not sent")
		gone, cancel := context.WithCancel(w.Context())
		cancel()
		_, err = w.client.Propose(gone, requestid.New(), nil)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}

// TestFinal: what trying again does not change is not tried again.
func TestFinal(t *testing.T) {
	inBubble(t, []api.Peer{a}, func(w *world) {
		for i, fault := range final {
			w.peer(a).Before(func(context.Context, string) error { return fmt.Errorf("no: %w", fault) })
			_, err := w.client.Propose(w.within(time.Minute), requestid.New(), nil)
			require.ErrorIs(t, err, fault)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
			require.Equal(t, i+1, w.calls("Propose"))
		}
		_, err := w.client.Propose(w.Context(), requestid.ID{}, nil)
		require.ErrorIs(t, err, api.ErrInvalid)
		_, err = w.client.ChangePeers(w.Context(), requestid.New(), nil)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Equal(t, len(final), w.calls("Propose"))
	})
}

func TestBusy(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.peer(a).Before(func(context.Context, string) error {
			if w.peer(a).Calls("Propose") < 3 {
				return api.ErrBusy
			}
			return nil
		})
		_, err := w.client.Propose(w.within(time.Minute), requestid.New(), nil)
		require.NoError(t, err)
		require.LessOrEqual(t, w.calls("Propose"), 5)
	})
}

// TestIdle (Z2, Z3): a call that has succeeded is over, and nobody asks a cluster that rests.
func TestIdle(t *testing.T) {
	inBubble(t, []api.Peer{a}, func(w *world) {
		_, err := w.client.ChangePeers(w.Context(), requestid.New(), []api.Peer{a, b})
		require.NoError(t, err)
		_, err = w.client.Propose(w.Context(), requestid.New(), nil)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, w.calls("ChangePeers"))
		require.Equal(t, 1, w.calls("Propose"))
		require.Zero(t, w.calls("Membership")+w.calls("Info")+w.calls("Entries"))
		asking := w.newClient(Config{Peers: all})
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 120, w.calls("Membership"), 2, "one every five seconds")
		require.NoError(t, asking.Close())
	})
}

// TestReplaced has every peer of the cluster replaced, while the client rests.
func TestReplaced(t *testing.T) {
	inBubble(t, []api.Peer{a}, func(w *world) {
		client := w.newClient(Config{Peers: []api.Peer{a}})
		defer client.Close()
		old := []api.Peer{a, b, c}
		for i := range 3 {
			added := api.Peer{ID: fmt.Sprint("new", i), Addr: fmt.Sprint("new:", i)}
			w.cluster.SetMembers(api.Membership{Index: uint64(10 + i), Voters: append(old[1:len(old):len(old)], added), Outgoing: old})
			time.Sleep(10 * time.Second)
			w.cluster.Lead(added)
			w.network.Down(old[0].ID, errors.New("gone"))
			old = append(old[1:len(old):len(old)], added)
			w.cluster.SetMembers(api.Membership{Index: uint64(10 + i), Voters: old})
		}
		time.Sleep(time.Minute)
		_, err := client.Propose(w.within(5*time.Second), requestid.New(), nil)
		require.NoError(t, err)
		m, err := client.Membership(w.within(5 * time.Second))
		require.NoError(t, err)
		require.Equal(t, old, m.Voters)
		require.Equal(t, append(old, a), client.peers(), "seeds come last")
	})
}

// TestDeaf has a leader that takes connections and updates and never answers: it is given up.
func TestDeaf(t *testing.T) {
	inBubble(t, all, func(w *world) {
		_, err := w.client.Propose(w.Context(), requestid.New(), nil)
		require.NoError(t, err)
		w.network.Deaf("a", true)
		w.cluster.Lead(b)
		begun := time.Now()
		_, err = w.client.Propose(w.within(time.Minute), requestid.New(), nil)
		require.NoError(t, err)
		require.Less(t, time.Since(begun), 5*time.Second)
		m, err := w.client.Membership(w.within(time.Minute))
		require.NoError(t, err)
		require.Equal(t, all, m.Voters)
	})
}

// TestMembershipOfARemovedPeer: a peer that was removed may know an old membership. The other peers
// are asked; if they do not answer, the error says that the peer was removed.
func TestMembershipOfARemovedPeer(t *testing.T) {
	inBubble(t, []api.Peer{c}, func(w *world) {
		w.cluster.SetMembers(api.Membership{Index: 5, Voters: []api.Peer{a, b}, Removed: []string{"c"}})
		m, err := w.client.Membership(w.within(time.Minute))
		require.NoError(t, err)
		require.Equal(t, []api.Peer{a, b}, m.Voters)
		require.Positive(t, w.peer(a).Calls("Membership")+w.peer(b).Calls("Membership"))

		for _, p := range []api.Peer{a, b} {
			w.network.Down(p.ID, errors.New("no route"))
		}
		alone := w.newClient(Config{Peers: []api.Peer{c}, Refresh: -1})
		defer alone.Close()
		_, err = alone.Membership(w.within(10 * time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "peer c was removed from the cluster")
		w.cluster.SetMembers(api.Membership{Index: 6, Voters: []api.Peer{c}, Removed: []string{"c"}})
		_, err = alone.Membership(w.within(time.Minute))
		require.ErrorIs(t, err, api.ErrRefused)
	})
}

// TestDials: many calls at once do not dial a dead peer more often than one does.
func TestDials(t *testing.T) {
	inBubble(t, all, func(w *world) {
		for _, p := range all {
			w.network.Down(p.ID, errors.New("no route"))
		}
		ctx := w.within(10 * time.Second)
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				_, err := w.client.Propose(ctx, requestid.New(), nil)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		calls.Wait()
		for _, p := range all {
			require.LessOrEqual(t, w.network.Dials(p.ID), 68, "one in half a pause")
		}
	})
}

func TestInfos(t *testing.T) {
	inBubble(t, []api.Peer{a}, func(w *world) {
		info, err := w.client.Info(w.Context(), "b")
		require.NoError(t, err)
		require.Equal(t, b, info.Peer)
		_, err = w.client.Info(w.Context(), "z")
		require.ErrorIs(t, err, api.ErrInvalid)
		w.network.Down("b", errors.New("no route"))
		w.network.Deaf("c", true)
		synctest.Wait()
		time.Sleep(time.Second)
		begun := time.Now()
		infos := w.client.Infos(w.Context())
		require.Len(t, infos, 3)
		require.NoError(t, infos[0].Err)
		require.Equal(t, a, infos[0].Info.Peer)
		require.Equal(t, b, infos[1].Peer)
		require.ErrorContains(t, infos[1].Err, "no route")
		require.ErrorContains(t, infos[2].Err, "no reply in time")
		require.Equal(t, DefaultCallTimeout, time.Since(begun))
	})
}

func TestRefused(t *testing.T) {
	inBubble(t, all, func(w *world) {
		for _, p := range all {
			w.network.Down(p.ID, api.ErrRefused)
		}
		_, err := w.client.Propose(w.within(time.Minute), requestid.New(), nil)
		require.ErrorIs(t, err, api.ErrRefused)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		s := w.client.Subscribe(w.within(time.Minute), 1)
		_, open := <-s.Events()
		require.False(t, open)
		require.ErrorIs(t, s.Err(), api.ErrRefused)
		require.NoError(t, s.Close())
	})
}

func TestClose(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Hold()
		result := make(chan error, 1)
		go func() {
			_, err := w.client.Propose(w.Context(), requestid.New(), nil)
			result <- err
		}()
		s := w.client.Subscribe(w.Context(), 1)
		synctest.Wait()
		require.NoError(t, w.client.Close())
		err := <-result
		require.ErrorIs(t, err, api.ErrClosed)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, s.Err(), api.ErrClosed)
		_, err = w.client.Propose(w.Context(), requestid.New(), nil)
		require.ErrorIs(t, err, api.ErrClosed)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, w.client.Subscribe(w.Context(), 1).Err(), api.ErrClosed)
		require.ErrorIs(t, w.client.Infos(w.Context())[0].Err, api.ErrClosed)
		_, err = w.client.Membership(w.Context())
		require.ErrorIs(t, err, api.ErrClosed)
	})
}

// TestCloseBeforeSubscriptionIsCanceled: the client's context has ended, and the goroutine that
// cancels the subscription's context has not run yet (newSubscription does not start it).
func TestCloseBeforeSubscriptionIsCanceled(t *testing.T) {
	inBubble(t, all, func(w *world) {
		s := newSubscription(w.Context(), w.client, 1, nil)
		defer s.cancel(nil)
		require.NoError(t, w.client.Close())
		require.ErrorIs(t, s.run(), api.ErrClosed)
	})
}

func TestConfig(t *testing.T) {
	good := Config{Cluster: "x", Peers: all, Insecure: true}
	client, err := New(good)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	for _, bad := range []func(*Config){
		func(c *Config) { c.Cluster = "" },
		func(c *Config) { c.Peers = nil },
		func(c *Config) { c.Peers = []api.Peer{{ID: "a"}} },
		func(c *Config) { c.Insecure = false },
		func(c *Config) { c.Secret = []byte("0123456789abcdef") }, // and Insecure
		func(c *Config) { c.Insecure, c.Secret = false, []byte("0123456789abcde") },
		func(c *Config) { c.RetryPause = -1 },
		func(c *Config) { c.CallTimeout = -1 },
	} {
		cfg := good
		bad(&cfg)
		_, err := New(cfg)
		require.ErrorIs(t, err, api.ErrInvalid)
	}
}
