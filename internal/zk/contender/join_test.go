package contender

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

func TestJoin(t *testing.T) {
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(List, names(a, own))
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77}, "send read predecessor a-latch-1", "prove own-latch-5")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind a-latch-1")
}

// A create that has also shown that the contender is alone needs no listing.
func TestJoin_Alone(t *testing.T) {
	alone := created
	alone.Token, alone.Alone = 77, true
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, alone, "prove own-latch-5", "report own-latch-5 first, session 1, token 77", "set own 2ms")

	// In which session was it created? Only the znode shows it.
	alone.Session = 0
	s = newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, alone, "send read own own-latch-5", "send list")
	s.reply(List, names(own))
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77}, "prove own-latch-5", "report own-latch-5 first, session 1, token 77")
}

// The znode of a create whose session has changed in the meantime.
func TestJoin_SessionUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		reply Reply
		want  []string
	}{
		"of the previous session": {Reply{Owner: 9, Token: 77}, []string{"report session expired", "bury own-latch-5", finishes}},
		"deleted":                 {Reply{Err: zk.ErrNoNode}, []string{"report session expired", finishes}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, lockConfig)
			s.start("send create")
			s.reply(Create, Reply{Prefix: ownPrefix, Name: own}, "send read own own-latch-5", "send list")
			s.reply(ReadOwn, c.reply, c.want...)
			require.Equal(t, zkerror.ErrSessionExpired, s.c.Reason())
		})
	}
}

// After a create whose reply was lost, the contender searches for its znode. It uses the znode if
// the current session owns it, deletes it if an earlier session owns it, and creates a new one if
// there is none.
func TestJoin_ReplyLost(t *testing.T) {
	search := func(t *testing.T, found ...string) *script {
		s := newScript(t, lockConfig)
		s.start("send create")
		s.reply(Create, Reply{Err: ErrLost, Prefix: ownPrefix}, "send search own-latch-")
		if len(found) > 0 {
			s.reply(Search, Reply{Names: found}, "send inspect own-latch-5")
		}
		return s
	}
	t.Run("not applied", func(t *testing.T) {
		s := search(t)
		s.reply(Search, Reply{}, "send create")
		s.reply(Create, Reply{Prefix: "second-latch-", Name: "second-latch-0000000006", Session: 1}, "send read own second-latch-6", "send list")
	})
	t.Run("no queue", func(t *testing.T) {
		s := search(t)
		s.reply(Search, Reply{Err: zk.ErrNoNode}, "send create")
	})
	t.Run("applied in this session", func(t *testing.T) {
		s := search(t, own)
		s.reply(Inspect, Reply{Owner: 1}, "send read own own-latch-5", "send list")
		require.Equal(t, own, s.c.Name())
	})
	t.Run("applied in an earlier session", func(t *testing.T) {
		s := search(t, own)
		s.reply(Inspect, Reply{Owner: 9}, "send delete own-latch-5")
		s.reply(Delete, Reply{}, "send create")
	})
	t.Run("deleted in the meantime", func(t *testing.T) {
		s := search(t, own)
		s.reply(Inspect, Reply{Err: zk.ErrNoNode}, "send create")
	})
	t.Run("several", func(t *testing.T) {
		s := search(t, own, "own-latch-0000000006")
		s.reply(Inspect, Reply{Owner: 1}, "send inspect own-latch-6")
		s.reply(Inspect, Reply{Owner: 1}, "send delete own-latch-6")
		s.reply(Delete, Reply{Err: ErrLost}, "send inspect own-latch-6")
		s.reply(Inspect, Reply{Err: zk.ErrNoNode}, "send read own own-latch-5", "send list")
	})
	t.Run("the search fails", func(t *testing.T) {
		s := search(t)
		s.reply(Search, Reply{Err: errOther}, "report other error", "send search own-latch- last")
	})
}

// The contender does not search before a server answers.
func TestJoin_ReplyLostWithTheConnection(t *testing.T) {
	s := newScript(t, lockConfig)
	s.start("send create")
	s.conn.Up = false
	s.reply(Create, Reply{Err: ErrLost, Prefix: ownPrefix})
	s.connect(func(c *Conn) { c.Up, c.Epoch = true, 2 }, "send search own-latch-")
}

// A create can be applied after the search. Every listing shows whether it was.
func TestJoin_AppliedLate(t *testing.T) {
	s := newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, Reply{Err: ErrLost, Prefix: "first-latch-"}, "send search first-latch-")
	s.reply(Search, Reply{}, "send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
	s.reply(List, names("first-latch-0000000004", own), "send delete first-latch-4", "removing first-latch-4",
		"prove own-latch-5", "report own-latch-5 first, session 1, token 77")
	s.reply(Delete, Reply{Err: ErrLost}, "send delete first-latch-4", "removing first-latch-4")
	s.reply(Delete, Reply{Err: zk.ErrNoNode})
	s.leave(errOther, "report other error", "rest", "send delete own-latch-5 last because: other error")
	s.reply(Delete, Reply{}, "departed own-latch-5", "send search first-latch- last")
	s.reply(Search, Reply{}, "finish <nil>")
}

func TestJoin_NoQueue(t *testing.T) {
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, Reply{Err: zk.ErrNoNode}, "send make queue")
	s.reply(MakeQueue, Reply{}, "send create")
	s.reply(Create, Reply{Err: zk.ErrNoNode}, "send make queue")
	s.reply(MakeQueue, Reply{Err: errOther}, "report other error", "finish <nil>")

	s = newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, Reply{Err: zk.ErrNoNode}, "report election is over", "finish <nil>")

	// The servers may have lost their data since the queue was seen in another session.
	s = newScript(t, electionConfig)
	s.conn.Session = 2
	s.start("send create")
	s.reply(Create, Reply{Err: zk.ErrNoNode}, "report session expired", "finish <nil>")
}

// The session has expired during the first create, and the contender creates its znode in the next
// session. Whether the queue is the same is known when a listing has shown it.
func TestJoin_NextSession(t *testing.T) {
	joinNext := func(t *testing.T) *script {
		s := newScript(t, electionConfig)
		s.do(Input{Kind: Start})
		s.conn.Session, s.conn.Epoch = 2, 2
		s.do(s.replied(Create, Reply{Err: ErrLost, Prefix: ownPrefix}))
		s.do(s.replied(Search, Reply{Names: []string{own}}))
		s.do(s.replied(Inspect, Reply{Owner: 2, Ephemeral: true}))
		s.do(s.replied(ReadOwn, Reply{Owner: 2, Token: 77, Ephemeral: true}))
		return s
	}
	t.Run("another queue", func(t *testing.T) {
		s := joinNext(t)
		s.reply(List, Reply{Names: []string{own}, QueueCzxid: 71}, "report session expired", "send delete own-latch-5 last because: session expired")
		s.reply(Delete, Reply{}, departed, finishes)
	})
	// The session changes during the create, and the owner of the znode is not known yet.
	joinUnknown := func(t *testing.T) *script {
		s := newScript(t, electionConfig)
		s.do(Input{Kind: Start})
		s.conn.Session, s.conn.Epoch = 2, 2
		s.do(s.replied(Create, Reply{Name: own, Prefix: ownPrefix, Token: 77}))
		return s
	}
	t.Run("another queue, owner unknown", func(t *testing.T) {
		s := joinUnknown(t)
		s.reply(List, Reply{Names: []string{own}, QueueCzxid: 71}, "report session expired", "send delete own-latch-5 last because: session expired")
		s.reply(Delete, Reply{}, departed, finishes)
	})
	t.Run("no queue in the third session, owner unknown", func(t *testing.T) {
		s := joinUnknown(t)
		s.do(s.replied(List, names(a, own)))
		s.conn.Session, s.conn.Epoch = 3, 3
		s.do(Input{Kind: ConnChanged})
		s.do(s.replied(List, Reply{Err: zk.ErrNoNode}))
		require.Equal(t, zkerror.ErrSessionExpired, s.c.Reason())
	})
	t.Run("the queue is deleted later", func(t *testing.T) {
		s := joinNext(t)
		s.do(s.replied(List, names(own)))
		s.fired(OwnWatch, own, Deleted, "report znode was deleted by another client", "set reason 10ms", "send find reason")
		s.reply(FindReason, Reply{}, "report election is over", "rest", finishes)
	})
}

// Only a contender that has not joined leaves with zk.ErrNoNode because the queue has vanished, or was
// made again.
func TestJoin_QueueMayVanish(t *testing.T) {
	cfg := electionConfig
	cfg.QueueMayVanish = true
	lost := func(s *script) {
		s.do(s.replied(Create, Reply{Err: ErrLost, Prefix: ownPrefix}))
	}
	create := func(s *script) { s.do(s.replied(Create, created)) }
	other := func(names ...string) Reply { return Reply{Names: names, QueueCzxid: 71} }
	for name, c := range map[string]struct {
		joined func(s *script)
		kind   RequestKind
		reply  Reply
		want   error
	}{
		"no queue":                       {func(*script) {}, Create, Reply{Err: zk.ErrNoNode}, zk.ErrNoNode},
		"no queue, created":              {create, List, Reply{Err: zk.ErrNoNode}, zkerror.ErrElectionOver},
		"no queue, perhaps created":      {lost, Search, Reply{Err: zk.ErrNoNode}, zkerror.ErrElectionOver},
		"another queue":                  {create, List, other(own), zk.ErrNoNode},
		"another queue, not created":     {create, List, other(), zkerror.ErrElectionOver},
		"another queue, which has ended": {create, List, other(own, tombstone), zkerror.ErrElectionOver},
		"no queue for the second create": {func(s *script) {
			lost(s)
			s.do(s.replied(Search, Reply{}))
		}, Create, Reply{Err: zk.ErrNoNode}, zkerror.ErrElectionOver},
		"another queue, second create": {func(s *script) {
			lost(s)
			s.do(s.replied(Search, Reply{}))
			s.do(s.replied(Create, Reply{Prefix: "second-latch-", Name: "second-latch-0000000006", Session: 1}))
		}, List, other("second-latch-0000000006"), zkerror.ErrElectionOver},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, cfg)
			s.do(Input{Kind: Start})
			c.joined(s)
			s.do(s.replied(c.kind, c.reply))
			require.Equal(t, c.want, s.c.Reason())
		})
	}
}

func TestJoin_Fails(t *testing.T) {
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, Reply{Err: zk.ErrNoAuth}, "report "+zk.ErrNoAuth.Error(), "finish <nil>")

	// The reply is lost for good, so that the znode may exist.
	s = newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, Reply{Err: zkerror.ErrConnClosed, Prefix: ownPrefix}, "report connection is closed", "finish connection is closed")
}

func TestJoin_NumbersExhausted(t *testing.T) {
	for _, number := range []string{"2147483647", "-000000001"} {
		s := newScript(t, lockConfig)
		s.start("send create")
		s.do(s.replied(Create, Reply{Prefix: ownPrefix, Name: ownPrefix + number, Session: 1}))
		require.Equal(t, zkerror.ErrNodeExhausted, s.c.Reason())
		require.Equal(t, "report sequence numbers of the node are exhausted", s.outputs[0])
	}
	// Another contender has the last number, and the name contains no GUID.
	s := newScript(t, lockConfig)
	s.start("send create")
	s.do(s.replied(Create, Reply{Err: zk.ErrNodeExists}))
	require.Equal(t, zkerror.ErrNodeExhausted, s.c.Reason())
}

// Patience limits how long ZooKeeper may be unreachable.
func TestJoin_Patience(t *testing.T) {
	cfg := lockConfig
	cfg.Patience = time.Second
	s := newScript(t, cfg)
	s.conn.Up = false
	s.start("set patience 1s", "send create")
	s.connect(func(c *Conn) { c.Up = true }, "stop patience")
	s.connect(func(c *Conn) { c.Up = false }, "set patience 1s")
	s.expired(PatienceTimer, "report ZooKeeper does not answer")
	require.Equal(t, zkerror.ErrUnreachable, s.c.Reason())
	s.reply(Create, Reply{Err: zk.ErrNoNode}, "finish <nil>")

	// A timer that expires when the connection is up again does not count.
	s = newScript(t, cfg)
	s.conn.Up = false
	s.start("set patience 1s", "send create")
	s.conn.Up = true
	s.expired(PatienceTimer)
}
