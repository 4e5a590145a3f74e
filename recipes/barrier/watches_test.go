package barrier

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// channels are the watches that the client library keeps for a connection.
func channels(conn *zk.Conn) (n int) {
	synctest.Wait() // the client does not change them meanwhile
	for it := reflect.ValueOf(conn).Elem().FieldByName("watchers").MapRange(); it.Next(); {
		n += it.Value().Len()
	}
	return n
}

// A watch more for each call that was given up.
func TestTrap25_WatchesOfADoubleDoNotAddUp(t *testing.T) {
	play(t, func(w world) {
		conn, other := w.connect(), w.connect()
		d, theirs := w.double(conn, 2), w.double(other, 2)
		short := func(f func(context.Context) error) {
			for range 10 {
				ctx, cancel := context.WithTimeout(w.Context(), time.Second)
				require.ErrorIs(w, f(ctx), context.DeadlineExceeded)
				cancel()
			}
		}
		short(func(ctx context.Context) error { _, err := d.Enter(ctx); return err })
		require.LessOrEqual(w, channels(conn), 1)
		rounds := make(chan *Round, 1)
		go func() {
			r, err := theirs.Enter(w.Context())
			require.NoError(w, err)
			rounds <- r
		}()
		r, err := d.Enter(w.Context())
		require.NoError(w, err)
		their := <-rounds
		short(r.Leave)
		require.LessOrEqual(w, channels(conn), 2, "on the end, and on one who is left")
		short(func(ctx context.Context) error { _, err := d.Enter(ctx); return err })
		require.LessOrEqual(w, channels(conn), 2)
		require.NoError(w, their.Leave(w.Context()))
		require.NoError(w, r.Leave(w.Context()))
		require.Zero(w, channels(conn))
	})
}

// A watch that an earlier call has left may be one that the client has given up.
func TestTrap27_LeftWatchOfADoubleIsLost(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		d, theirs := w.double(conn, 2), w.double(w.connect(), 2)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := d.Enter(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.srv.DropConnections(conn.SessionID())
		time.Sleep(3 * time.Second)
		entered := make(chan error, 2)
		for _, x := range []*Double{d, theirs} {
			go func() {
				_, err := x.Enter(w.Context())
				entered <- err
			}()
			time.Sleep(time.Second)
		}
		time.Sleep(2 * timeout)
		require.Len(w, entered, 2)
		require.NoError(w, <-entered)
		require.NoError(w, <-entered)
	})
}
