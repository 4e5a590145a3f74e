package value

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// dial opens a connection with package zkdial, which recovers if the servers have lost their data.
func dial(h *bubble.Test) *zk.Conn {
	h.Helper()
	conn, _, err := zkdial.Connect([]string{h.Server.Name()}, bubble.SessionTimeout, zkdial.WithDialer(h.Server.Dialer()))
	require.NoError(h, err)
	h.Cleanup(func() {
		conn.Close()
		time.Sleep(time.Second) // wait until the goroutines that wait for the connection have ended
	})
	_, err = zkdial.Wait(h.Context(), conn)
	require.NoError(h, err)
	return conn
}

// loseData makes the servers lose their data, and waits until the connection has a new session.
func loseData(h *bubble.Test, conn *zk.Conn) {
	h.Helper()
	session := conn.SessionID()
	h.Server.Restart(zktest.LoseAll)
	time.Sleep(time.Minute)
	require.Equal(h, zk.StateHasSession, conn.State())
	require.NotEqual(h, session, conn.SessionID())
}

// TestCounter_ForgetsOldStateAfterDataLoss checks that a counter does not use states that it has read or written
// before the servers have lost their data: the znode can have the version of such a state again.
func TestCounter_ForgetsOldStateAfterDataLoss(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := dial(h)
		c := counterOn(h, conn)
		for range 50 { // create znodes, so that all zxids after the loss of data are smaller than the counter's
			_, err := conn.Create("/n", nil, zk.FlagSequence, openACL)
			require.NoError(h, err)
		}
		for range 7 {
			addTo(h, c, 1)
		}
		loseData(h, conn)
		other := newCounter(h)
		want := addTo(h, other, 3)
		for range 10 {
			want++
			require.Equal(h, want, addTo(h, c, 1))
		}
		begin := len(h.Server.Log())
		addTo(h, c, 1)
		requests := h.Server.Log()[begin:].Requests().Session(conn.SessionID())
		require.Len(h, requests, 1, "the state of the new session is used: %v", requests)
	})
}

// writeTwice writes a value twice over one connection. The second write creates the record of the
// session, which the creation of the znode does not need.
func writeTwice(h *bubble.Test, conn *zk.Conn, path, first, second string) {
	h.Helper()
	v := newValue[string](h, conn, path)
	for _, s := range []string{first, second} {
		_, err := v.Set(h.Context(), s)
		require.NoError(h, err)
	}
}

// TestCompareAndSet_RejectsOldVersionAfterDataLoss checks that CompareAndSet with a version from before a loss of
// data does not replace a different value that has the same version.
func TestCompareAndSet_RejectsOldVersionAfterDataLoss(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := dial(h)
		writeTwice(h, conn, "/app/words", "zero", "one")
		v := newValue[string](h, conn, "/app/words")
		_, old, err := v.Get(h.Context())
		require.NoError(h, err)
		loseData(h, conn)
		writeTwice(h, conn, "/app/words", "a", "b")
		_, err = v.CompareAndSet(h.Context(), old, "one+")
		require.ErrorIs(h, err, ErrChanged)
		got, _, err := v.Get(h.Context())
		require.NoError(h, err)
		require.Equal(h, "b", got)
	})
}

// TestUpdate_ReadsNewValueAfterDataLoss checks that Update does not replace a different value that has the same
// version if the servers lose their data while the function of Update runs.
func TestUpdate_ReadsNewValueAfterDataLoss(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := dial(h)
		writeTwice(h, conn, "/app/words", "zero", "one")
		v := newValue[string](h, conn, "/app/words")
		lost := false
		got, err := v.Update(h.Context(), func(s string) (string, error) {
			if !lost {
				lost = true
				loseData(h, conn)
				writeTwice(h, conn, "/app/words", "a", "b")
			}
			return s + "+", nil
		})
		require.NoError(h, err)
		require.Equal(h, "b+", got)
	})
}
