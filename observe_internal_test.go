package leaderelection

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// observe starts an observation and returns it with a function that ends it.
func (w *askWorld) observe(conn *zk.Conn) (<-chan Observation, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	seen, err := Observe(ctx, conn, "/election")
	require.NoError(w, err)
	return seen, func() {
		cancel()
		for range seen {
		}
	}
}

// The number of watches does not grow with the number of observations.
func TestObserveLeavesOneWatch(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		_, err := w.operator.Create("/election", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		conn := w.connect()
		for _, leader := range []bool{false, true} {
			if leader {
				w.stands(w.connect())
			}
			for range 1000 {
				seen, end := w.observe(conn)
				require.Equal(w, leader, (<-seen).Leader != nil)
				end()
			}
			require.Equal(w, 1, watchChannels(conn))
		}
	})
}

// A change is observed although the client library has lost its watch at a reconnect,
// during an observation or before it.
func TestObserveAfterALostWatch(t *testing.T) {
	for _, before := range []bool{false, true} {
		playAsking(t, func(w *askWorld) {
			a, b := w.stands(w.connect()), w.stands(w.connect())
			conn := w.connect()
			seen, end := w.observe(conn)
			require.Equal(w, a.ID(), (<-seen).Leader.ID)
			if before {
				end()
			}
			w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
			w.srv.DropConnections(conn.SessionID())
			w.pass(3 * time.Second)
			if before {
				seen, end = w.observe(conn)
				require.Equal(w, a.ID(), (<-seen).Leader.ID)
			}
			require.NoError(w, a.Resign())
			require.Equal(w, b.ID(), (<-seen).Leader.ID)
			require.NoError(w, b.Resign())
			require.Nil(w, (<-seen).Leader)
			c := w.stands(w.connect())
			require.Equal(w, c.ID(), (<-seen).Leader.ID)
			require.NoError(w, DeleteElection(w.operator, "/election"))
			synctest.Wait()
			require.ErrorIs(w, (<-seen).Err, ErrElectionOver)
			end()
		})
	}
}

// The advertised value is listed and observed apart from the name, before and after a hand-over.
func TestValueIsObserved(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a := w.stands(w.connect(), WithClientName("a"), WithValue("10.0.0.1:80\x00more"))
		b := w.stands(w.connect(), WithClientName("b"))
		data, _, err := w.operator.Get(a.ID())
		require.NoError(w, err)
		require.Equal(w, "a\x0010.0.0.1:80\x00more", string(data))
		data, _, err = w.operator.Get(b.ID())
		require.NoError(w, err)
		require.Equal(w, "b", string(data), "the data of a candidate without a value are its name")

		all, err := Candidates(w.operator, "/election")
		require.NoError(w, err)
		require.Len(w, all, 2)
		require.Equal(w, []string{"a", "10.0.0.1:80\x00more"}, []string{all[0].Name, all[0].Value})
		require.Equal(w, []string{"b", ""}, []string{all[1].Name, all[1].Value})
		seen, end := w.observe(w.operator)
		require.Equal(w, all[0], *(<-seen).Leader)
		require.NoError(w, a.Resign())
		require.Equal(w, all[1], *(<-seen).Leader)
		end()
	})
}
