package contender

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

const (
	reports       = "report other error"
	deletesOwn    = "send delete own-latch-5 last because: other error"
	departed      = "departed own-latch-5"
	finishes      = "finish <nil>"
	searchesFirst = "send search first-latch- last"
)

func TestRemove(t *testing.T) {
	s := hold(t, electionConfig)
	s.leave(errOther, reports, "rest", deletesOwn)
	require.Equal(t, errOther, s.c.Reason())
	require.False(t, s.c.Done())
	s.reply(Delete, Reply{}, departed, finishes)
	require.True(t, s.c.Done())
}

// A later reason does not replace the first one.
func TestLeave_Twice(t *testing.T) {
	s := hold(t, electionConfig)
	s.leave(errOther, reports, "rest", deletesOwn)
	s.leave(zkerror.ErrElectionOver)
	require.Equal(t, errOther, s.c.Reason())
}

func TestRemove_NothingCreated(t *testing.T) {
	s := newScript(t, electionConfig)
	s.start("send create")
	s.leave(errOther, reports)
	s.reply(Create, Reply{Err: zk.ErrNoNode}, finishes)
}

// A contender that leaves before the reply to its create waits for it.
func TestRemove_CreateInFlight(t *testing.T) {
	s := newScript(t, electionConfig)
	s.start("send create")
	s.leave(errOther, reports)
	s.reply(Create, created, deletesOwn)
	s.reply(Delete, Reply{}, departed, finishes)

	s = newScript(t, electionConfig)
	s.start("send create")
	s.leave(errOther, reports)
	s.reply(Create, Reply{Err: ErrLost, Prefix: ownPrefix}, "send search own-latch- last")
	s.reply(Search, Reply{Names: []string{own}}, "send delete own-latch-5")
	s.reply(Delete, Reply{}, finishes)
}

func TestReceiveDelete(t *testing.T) {
	t.Run("reply lost", func(t *testing.T) {
		s := hold(t, electionConfig)
		s.leave(errOther, reports, "rest", deletesOwn)
		s.reply(Delete, Reply{Err: ErrLost}, deletesOwn)
		s.reply(Delete, Reply{Err: zk.ErrNoNode}, finishes)
	})
	t.Run("reply lost with the connection", func(t *testing.T) {
		s := hold(t, electionConfig)
		s.leave(errOther, reports, "rest", deletesOwn)
		s.conn.Up = false
		s.reply(Delete, Reply{Err: ErrLost})
		s.connect(func(c *Conn) { c.Up, c.Epoch = true, 2 }, deletesOwn)
	})
	t.Run("not permitted", func(t *testing.T) {
		s := hold(t, electionConfig)
		s.leave(errOther, reports, "rest", deletesOwn)
		s.reply(Delete, Reply{Err: zk.ErrNoAuth}, "finish "+zk.ErrNoAuth.Error())
	})
}

// What creates without a reply have left is searched for at the end.
func TestRemove_Orphans(t *testing.T) {
	leaving := func(t *testing.T) *script {
		s := newScript(t, electionConfig)
		s.do(Input{Kind: Start})
		s.do(s.replied(Create, Reply{Err: ErrLost, Prefix: "first-latch-"}))
		s.do(s.replied(Search, Reply{}))
		s.do(s.replied(Create, created))
		s.leave(errOther, reports, deletesOwn)
		s.reply(Delete, Reply{}, departed, searchesFirst)
		return s
	}
	found := Reply{Names: []string{"first-latch-0000000004", "first-latch-0000000006"}}
	t.Run("none", func(t *testing.T) {
		leaving(t).reply(Search, Reply{}, finishes)
	})
	t.Run("no queue", func(t *testing.T) {
		leaving(t).reply(Search, Reply{Err: zk.ErrNoNode}, finishes)
	})
	t.Run("the search fails", func(t *testing.T) {
		leaving(t).reply(Search, Reply{Err: errOther}, "finish other error")
	})
	t.Run("two", func(t *testing.T) {
		s := leaving(t)
		s.reply(Search, found, "send delete first-latch-4")
		s.reply(Delete, Reply{Err: ErrLost}, "send delete first-latch-4")
		s.reply(Delete, Reply{Err: zk.ErrNoNode}, "send delete first-latch-6")
		s.reply(Delete, Reply{}, finishes)
	})
}

// A search that was sent before the contender left may be too old.
func TestRemove_EarlierSearch(t *testing.T) {
	s := newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, Reply{Err: ErrLost, Prefix: "first-latch-"}, "send search first-latch-")
	s.leave(errOther, reports)
	s.reply(Search, Reply{}, searchesFirst)
}

// While no server answers, nothing is sent. The removal ends with the session and with the
// connection.
func TestRemove_WithoutConnection(t *testing.T) {
	down := func(t *testing.T) *script {
		s := hold(t, electionConfig)
		s.conn.Up = false
		s.leave(errOther, reports, "rest")
		return s
	}
	t.Run("up again", func(t *testing.T) {
		down(t).connect(func(c *Conn) { c.Up, c.Epoch = true, 2 }, deletesOwn)
	})
	t.Run("closed", func(t *testing.T) {
		down(t).connect(func(c *Conn) { c.Closed = true }, "finish connection is closed")
	})
	t.Run("expired", func(t *testing.T) {
		down(t).connect(func(c *Conn) { c.Session = 0 }, "bury own-latch-5", finishes)
	})
	t.Run("expired while the delete is in flight", func(t *testing.T) {
		s := hold(t, electionConfig)
		s.leave(errOther, reports, "rest", deletesOwn)
		s.connect(func(c *Conn) { c.Session = 2 })
		s.reply(Delete, Reply{Err: ErrLost}, "bury own-latch-5", finishes)
	})
}

// The deletion of a znode of an earlier create fails before the contender has left.
func TestFailDelete(t *testing.T) {
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, Reply{Err: ErrLost, Prefix: ownPrefix}, "send search own-latch-")
	s.reply(Search, Reply{Names: []string{own}}, "send inspect own-latch-5")
	s.reply(Inspect, Reply{Owner: 9}, "send delete own-latch-5")
	s.reply(Delete, Reply{Err: zk.ErrNoAuth}, "report "+zk.ErrNoAuth.Error(), "send search own-latch- last")
}
