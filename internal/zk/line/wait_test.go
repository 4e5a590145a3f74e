package line

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const testTimeout = 4 * time.Second

// candidates is a test with one candidate of an election, whose methods the test calls, and
// candidates ahead of it, which are only znodes.
type candidates struct {
	*testing.T
	srv   *zktest.Server
	conn  *zk.Conn // of the place
	other *zk.Conn
	place *place
}

// standing runs f in a bubble.
func standing(t *testing.T, f func(c *candidates)) {
	synctest.Test(t, func(t *testing.T) {
		c := &candidates{T: t, srv: zktest.Start(t)}
		c.conn, c.other = c.connect(), c.connect()
		_, err := c.other.Create("/dir", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		c.place = &place{
			Config: &Config{Conn: c.conn, Dir: "/dir", Naming: CuratorLatch, EndMarker: "end", Log: slog.New(slog.DiscardHandler)},
			report: func(State) {},
			sub:    session.Subscribe(c.conn, testTimeout),
		}
		defer c.place.sub.Close()
		f(c)
	})
}

func (c *candidates) connect() *zk.Conn {
	conn, _, err := c.srv.Connect(testTimeout)
	require.NoError(c, err)
	synctest.Wait()
	return conn
}

// ahead creates the znode of a candidate.
func (c *candidates) ahead(conn *zk.Conn) string {
	created, err := conn.Create("/dir/n_", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(c, err)
	return created
}

// enter creates the znode of the place, lists the candidates, sets the watches, and waits
// until the session is proven.
func (c *candidates) enter() {
	created, err := c.conn.Create("/dir/own-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(c, err)
	p := c.place
	p.prefixes = []string{"own-latch-"}
	p.setOwn(path.Base(created))
	require.NoError(c, p.look(c.Context()))
	_, err = p.watchPredecessor(c.Context())
	require.NoError(c, err)
	p.prove()
	time.Sleep(testTimeout)
	require.True(c, p.sub.State().Proven)
}

func (c *candidates) delete(path string) {
	require.NoError(c, c.other.Delete(path, -1))
	synctest.Wait()
}

// wait is the wait of the place, for a second.
func (c *candidates) wait() error {
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	return c.place.wait(ctx)
}

// The second candidate is the first one as soon as its predecessor is gone. After a
// reconnect it lists the candidates before it leads: its znode may be gone, too, and
// the server reports both deletions in any order.
func TestReconnectMakesThePlaceUncertain(t *testing.T) {
	standing(t, func(c *candidates) {
		c.ahead(c.other)
		c.enter()
		require.True(c, c.place.isNext())
		c.srv.DropConnections(c.conn.SessionID())
		time.Sleep(testTimeout)
		state := c.place.sub.State()
		require.True(c, state.Up && state.Proven && state.Session == c.place.session)
		require.False(c, c.place.isNext())
	})
}

// The predecessor belongs to the same session, whose end deletes both znodes. The event of
// the predecessor's znode is the first one that is received.
func TestPredecessorGoesWithTheSession(t *testing.T) {
	standing(t, func(c *candidates) {
		predecessor := c.ahead(c.conn)
		c.enter()
		c.delete(predecessor)
		c.delete(c.place.path())
		require.True(c, c.place.isNext())
		event := c.place.predecessorWatch.Take(<-c.place.predecessorWatch.C())
		require.ErrorIs(c, c.place.predecessorChanged(c.Context(), event), zkerror.ErrDeleted)
	})
}

// The predecessor leaves between the setting of a watch on it and a listing. Its deletion
// says nothing about the candidate that is the predecessor after that listing.
func TestWatchOfAFormerPredecessor(t *testing.T) {
	standing(t, func(c *candidates) {
		c.ahead(c.other)
		former := c.ahead(c.other)
		c.enter()
		require.Equal(c, former, c.place.predecessorPath)
		c.delete(former)
		require.NoError(c, c.place.look(c.Context()))
		require.True(c, c.place.isNext())
		require.ErrorIs(c, c.wait(), context.DeadlineExceeded)
		require.NotEmpty(c, c.place.around.predecessor)
	})
}

// The election is marked as over, which changes the data of the first candidate's znode,
// after the second has listed the candidates and before it watches the first.
func TestPredecessorIsWrittenBeforeTheWatch(t *testing.T) {
	standing(t, func(c *candidates) {
		first := c.ahead(c.other)
		c.enter()
		c.place.predecessorWatch = nil
		_, err := c.other.Multi(
			&zk.CreateRequest{Path: "/dir/end", Acl: zk.WorldACL(zk.PermAll)},
			&zk.SetDataRequest{Path: first, Version: -1},
		)
		require.NoError(c, err)
		require.ErrorIs(c, c.wait(), zkerror.ErrElectionOver)
	})
}

// A place that is left while its znode is being created waits for the answer, and deletes
// the znode.
func TestLeaveDuringTheCreate(t *testing.T) {
	standing(t, func(c *candidates) {
		creating := make(chan request.Answer[string], 1)
		c.place.creating, c.place.prefixes = creating, []string{"own-latch-"}
		done := make(chan error, 1)
		go func() { done <- c.place.remove(errors.New("left"), false) }()
		time.Sleep(time.Second)
		created, err := c.conn.Create("/dir/own-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		creating <- request.Answer[string]{Value: created, Err: err}
		require.NoError(c, <-done)
		left, _, err := c.conn.Children("/dir")
		require.NoError(c, err)
		require.Empty(c, left)
	})
}
