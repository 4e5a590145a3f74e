package contender

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// These tests contain what the exploration does not: rejections, patience, lost data of the servers, names
// without a GUID, and which requests are saved.

// The outputs that several tests require.
const (
	first      = "report own-latch-5 first, session 1, token 77"
	loses      = "report znode was deleted by another client"
	reports    = "report other error"
	deletesOwn = "send delete own-latch-5 last because: other error"
	finishes   = "finish <nil>"
)

// A contender whose request is rejected leaves with the error, before it has joined as well as afterwards. The
// exploration has no requests that the servers reject.
func TestReceive_Rejections(t *testing.T) {
	start := func(s *script) { s.do(Input{Kind: Start}) }
	createLost := func(s *script) {
		start(s)
		s.do(s.replied(Create, Reply{Err: ErrLost, Prefix: ownPrefix}))
	}
	joined := func(s *script) {
		start(s)
		s.do(s.replied(Create, created))
	}
	listed := func(earlier ...string) func(s *script) {
		return func(s *script) {
			joined(s)
			s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77, Ephemeral: true}))
			s.do(s.replied(List, names(append(earlier, own)...)))
		}
	}
	searching := func(s *script) { // the search of a contender whose name contains no GUID
		createLost(s)
		s.do(s.replied(Search, Reply{}))
		s.do(s.replied(Create, created))
		s.do(s.replied(List, names(own)))
	}
	plain, followed, rejected := electionConfig, lockConfig, lockConfig
	plain.Naming = Prefix(ownPrefix)
	followed.Admit = func(Listing) Admission { return Admission{Place: First, Followed: true} }
	rejected.Admit = func(Listing) Admission { return Admission{Err: zk.ErrNoAuth} }
	for name, c := range map[string]struct {
		cfg   Config
		reach func(s *script)
		kind  RequestKind // the kind of the request that fails
		reply Reply
		want  error
	}{
		"create":                       {lockConfig, start, Create, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"create, last number, no GUID": {lockConfig, start, Create, Reply{Err: zk.ErrNodeExists}, connection.ErrNodeExhausted},
		"create, closed":               {lockConfig, start, Create, Reply{Err: connection.ErrConnClosed, Prefix: ownPrefix}, connection.ErrConnClosed},
		"make queue": {lockConfig, func(s *script) {
			start(s)
			s.do(s.replied(Create, Reply{Err: zk.ErrNoNode}))
		}, MakeQueue, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"search": {lockConfig, createLost, Search, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"inspect": {lockConfig, func(s *script) {
			createLost(s)
			s.do(s.replied(Search, Reply{Names: []string{own}}))
		}, Inspect, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"delete an orphan": {lockConfig, func(s *script) {
			createLost(s)
			s.do(s.replied(Search, Reply{Names: []string{ownPrefix + "0000000004"}}))
			s.do(s.replied(Inspect, Reply{Owner: 9}))
			s.do(s.replied(Create, created))
		}, Delete, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"list":             {electionConfig, joined, List, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"read own":         {electionConfig, joined, ReadOwn, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"read predecessor": {electionConfig, listed(a), ReadPredecessor, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"find contender":   {electionConfig, listed("n_0000000003"), FindContender, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"search after the second create, no GUID":  {plain, searching, Search, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"search, no GUID, and the queue has ended": {plain, searching, Search, Reply{Err: zk.ErrNoNode}, connection.ErrElectionOver},
		"policy": {rejected, joined, List, names(own), zk.ErrNoAuth},
		"notify": {followed, listed(), Notify, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		// These errors do not end the contender: it learns later that it is next, or its follower wakes anyway.
		"read before":    {electionConfig, listed(a, b), ReadBefore, Reply{Err: zk.ErrNoAuth}, nil},
		"notify, gone":   {followed, listed(), Notify, Reply{Err: zk.ErrNoNode}, nil},
		"notify, closed": {followed, listed(), Notify, Reply{Err: connection.ErrConnClosed}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, c.cfg)
			c.reach(s)
			s.do(s.replied(c.kind, c.reply))
			require.Equal(t, c.want, s.c.Reason())
			if c.want != nil {
				require.Equal(t, "report "+c.want.Error(), s.outputs[0])
			}
		})
	}
}

// A contender whose removal is rejected leaves with an error.
func TestRemove_Rejections(t *testing.T) {
	s := hold(t, electionConfig)
	s.leave(errOther, reports, "rest", deletesOwn)
	s.reply(Delete, Reply{Err: zk.ErrNoAuth}, "finish "+zk.ErrNoAuth.Error())

	s = newScript(t, electionConfig)
	s.start("send create")
	s.leave(errOther, reports)
	s.reply(Create, Reply{Err: ErrLost, Prefix: ownPrefix}, "send search own-latch- last")
	s.reply(Search, Reply{Err: errOther}, "finish other error")
}

// The deletion of a replaceable predecessor does not prove that its position is free.
func TestWait_Replaceable(t *testing.T) {
	cfg := electionConfig
	cfg.Replaceable = func(name string) bool { return name == a }
	s := follow(t, cfg)
	s.fired(OtherWatch, a, Deleted, "prove own-latch-5", "send list")
	s.reply(List, names("a2-latch-0000000001", own), "send read predecessor a2-latch-1")
}

// A create that has also shown that the contender is alone needs no listing.
func TestJoin_AloneIsFirst(t *testing.T) {
	alone := created
	alone.Token, alone.Alone = 77, true
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, alone, "prove own-latch-5", first, "set own 2ms")

	// The contender is alone, but in another queue than it was to join.
	alone.QueueCzxid = 71
	s = newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, alone, "send list")
	alone.QueueCzxid = 70
	s = newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, alone, "prove own-latch-5", first, "send read own own-latch-5")

	// The session of the create is unknown, so the contender must read its znode.
	alone.Session = 0
	s = newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, alone, "send read own own-latch-5", "send list")
	s.reply(List, names(own))
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77}, "prove own-latch-5", first)
}

// A contender waits for its predicted predecessor, and lists the queue when that has left, or if it does not exist.
func TestJoin_Predicted(t *testing.T) {
	predicted := created
	predicted.Token, predicted.Others, predicted.Predicted = 77, 2, b
	join := func(t *testing.T) *script {
		s := newScript(t, lockConfig)
		s.start("send create")
		s.reply(Create, predicted, "send read predecessor b-latch-2", "set prepare 10ms")
		return s
	}
	s := join(t)
	s.reply(ReadPredecessor, Reply{Ephemeral: true}, "report own-latch-5 behind b-latch-2")
	s.fired(OtherWatch, b, Deleted, "prove own-latch-5", "send list")
	s.reply(List, names(a, own), "send read own own-latch-5", "send read predecessor a-latch-1")

	s = join(t)
	s.reply(ReadPredecessor, Reply{Err: zk.ErrNoNode}, "send list")
	s.reply(List, names(a, own), "send read own own-latch-5", "send read predecessor a-latch-1", "prove own-latch-5")

	// The session of the create is unknown, so the contender must read its znode.
	predicted.Session = 0
	s = newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, predicted, "send read own own-latch-5", "send list")
}

// The session has expired during the first create, and the contender creates its znode in the next
// session. Only a listing shows whether the znode is in the same queue.
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
	t.Run("no queue", func(t *testing.T) { // the servers may have lost their data since the queue was seen
		s := newScript(t, electionConfig)
		s.conn.Session = 2
		s.start("send create")
		s.reply(Create, Reply{Err: zk.ErrNoNode}, "report session expired", finishes)
	})
	t.Run("another queue", func(t *testing.T) {
		s := joinNext(t)
		s.reply(List, Reply{Names: []string{own}, QueueCzxid: 71}, "report session expired", "send delete own-latch-5 last because: session expired")
		s.reply(Delete, Reply{}, finishes)
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
		s.reply(Delete, Reply{}, finishes)
	})
	t.Run("no queue in the third session, owner unknown", func(t *testing.T) {
		s := joinUnknown(t)
		s.do(s.replied(List, names(a, own)))
		s.conn.Session, s.conn.Epoch = 3, 3
		s.do(Input{Kind: ConnChanged})
		s.do(s.replied(List, Reply{Err: zk.ErrNoNode}))
		require.Equal(t, connection.ErrSessionExpired, s.c.Reason())
	})
	t.Run("the queue is deleted later", func(t *testing.T) {
		s := joinNext(t)
		s.do(s.replied(List, names(own)))
		s.fired(OwnWatch, own, Deleted, loses, "set reason 10ms", "send find reason")
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
		"no queue, created":              {create, List, Reply{Err: zk.ErrNoNode}, connection.ErrElectionOver},
		"no queue, perhaps created":      {lost, Search, Reply{Err: zk.ErrNoNode}, connection.ErrElectionOver},
		"another queue":                  {create, List, other(own), zk.ErrNoNode},
		"another queue, not created":     {create, List, other(), connection.ErrElectionOver},
		"another queue, which has ended": {create, List, other(own, tombstone), connection.ErrElectionOver},
		"no queue for the second create": {func(s *script) {
			lost(s)
			s.do(s.replied(Search, Reply{}))
		}, Create, Reply{Err: zk.ErrNoNode}, connection.ErrElectionOver},
		"another queue, second create": {func(s *script) {
			lost(s)
			s.do(s.replied(Search, Reply{}))
			s.do(s.replied(Create, Reply{Prefix: "second-latch-", Name: "second-latch-0000000006", Session: 1}))
		}, List, other("second-latch-0000000006"), connection.ErrElectionOver},
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

// A contender that was to join a queue that a lagging server has shown, and has joined another queue, leaves
// with zk.ErrNoNode. It ends if the queue has ended.
func TestJoin_QueueUnconfirmed(t *testing.T) {
	cfg := electionConfig
	cfg.QueueUnconfirmed = true
	other := func(names ...string) Reply { return Reply{Names: names, QueueCzxid: 71} }
	for name, c := range map[string]struct {
		lost  bool // a first create has no reply
		reply Reply
		want  error
	}{
		"another queue":                  {false, other(own), zk.ErrNoNode},
		"another queue, a create lost":   {true, other(own), zk.ErrNoNode},
		"another queue, which has ended": {false, other(own, tombstone), connection.ErrElectionOver},
		"the queue":                      {false, names(own), nil},
		"no queue":                       {false, Reply{Err: zk.ErrNoNode}, connection.ErrElectionOver},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, cfg)
			s.do(Input{Kind: Start})
			if c.lost {
				s.do(s.replied(Create, Reply{Err: ErrLost, Prefix: "lost-latch-"}))
				s.do(s.replied(Search, Reply{}))
			}
			s.do(s.replied(Create, created))
			s.do(s.replied(List, c.reply))
			require.Equal(t, c.want, s.c.Reason())
		})
	}
}

// Patience limits how long ZooKeeper may be unreachable.
func TestJoin_Patience(t *testing.T) {
	cfg := lockConfig
	cfg.Patience = time.Second
	s := newScript(t, cfg)
	s.conn.Up = false
	s.start("set patience 1s", "send create")
	s.connect(func(c *connection.State) { c.Up = true }, "stop patience")
	s.connect(func(c *connection.State) { c.Up = false }, "set patience 1s")
	s.expired(PatienceTimer, "report the server does not answer")
	require.Equal(t, connection.ErrUnreachable, s.c.Reason())
	s.reply(Create, Reply{Err: zk.ErrNoNode}, "finish <nil>")

	// A timer that expires when the connection is up again does not count.
	s = newScript(t, cfg)
	s.conn.Up = false
	s.start("set patience 1s", "send create")
	s.conn.Up = true
	s.expired(PatienceTimer)
}

// TestWait_ContenderInTheMiddleLeaves checks that a contender requests a lease when the contender before its
// predecessor has left, and gives the lease up when the listing shows that it is not next.
func TestWait_ContenderInTheMiddleLeaves(t *testing.T) {
	const head = "c-latch-0000000000"
	cfg := electionConfig
	cfg.Standby = time.Minute
	s := join(t, cfg, head, a, b)
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind b-latch-2")
	s.reply(ReadBefore, Reply{Owner: 2})
	s.fired(OtherWatch, a, Deleted, "send list", "prove own-latch-5")
	s.reply(List, names(head, b, own), "send read before c-latch-0", "rest")
}

// A contender reports that it is the next one when a listing shows it. A break of the connection does not
// change that, because no contender joins before it, but a child with a smaller number that was created by hand does.
func TestWait_NextIsReported(t *testing.T) {
	s := join(t, electionConfig, a, b)
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind b-latch-2")
	s.reply(ReadBefore, Reply{Owner: 2})
	s.fired(OtherWatch, a, Deleted, "send list", "prove own-latch-5")
	s.reply(List, names(b, own), "report own-latch-5 behind b-latch-2 next")
	s.connect(func(c *connection.State) { c.Epoch++ }, "send read own own-latch-5 reset", "send list reset")
	s.reply(List, names(a, b, own), "send read predecessor b-latch-2 reset", "send read before a-latch-1 reset", "rest")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind b-latch-2")
}

// Only a znode with an unrecognized name is inspected: it is a contender if it is ephemeral.
func TestFindContender_ChecksOnlyUnrecognizedNames(t *testing.T) {
	const foreign, twin = "n_0000000003", "n_0000000005"
	t.Run("predecessor", func(t *testing.T) {
		s := newScript(t, electionConfig)
		s.do(Input{Kind: Start})
		s.do(s.replied(Create, created))
		s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
		s.reply(List, names(a, foreign, own), "send find contender n_0000000003", "send read before a-latch-1")
		s.reply(FindContender, Reply{Name: foreign}, "send read predecessor n_0000000003")
		s.reply(ReadPredecessor, Reply{Owner: 2, Ephemeral: true}, "report own-latch-5 behind n_0000000003")
	})
	t.Run("predecessor is no contender", func(t *testing.T) {
		s := join(t, electionConfig, foreign)
		s.reply(FindContender, Reply{Names: []string{foreign}}, "ignoring 1, first n_0000000003", "send list")
		s.reply(List, names(foreign, own), first)
	})
	t.Run("predecessor has left", func(t *testing.T) {
		s := join(t, electionConfig, foreign)
		s.reply(FindContender, Reply{}, "send list")
		s.reply(List, names(own), first)
	})
	t.Run("predecessor cannot be read", func(t *testing.T) {
		s := join(t, electionConfig, foreign)
		s.do(s.replied(FindContender, Reply{Err: zk.ErrNoAuth}))
		require.Equal(t, zk.ErrNoAuth, s.c.Reason())
	})
	t.Run("several are no contenders", func(t *testing.T) {
		s := join(t, electionConfig, "n_0000000001", "n_0000000002", foreign)
		require.Equal(t, []string{"send find contender n_0000000003,n_0000000002,n_0000000001"}, s.outputs)
		s.reply(FindContender, Reply{Name: "n_0000000001", Names: []string{foreign, "n_0000000002"}}, "ignoring 2, first n_0000000003", "send list")
		s.reply(List, names("n_0000000001", "n_0000000002", foreign, own), "send find contender n_0000000001", "prove own-latch-5")
		s.reply(FindContender, Reply{Name: "n_0000000001"}, "send read predecessor n_0000000001")
	})
	t.Run("another predecessor since", func(t *testing.T) {
		s := join(t, electionConfig, a, foreign)
		s.do(s.replied(ReadBefore, Reply{Owner: 2}))
		s.fired(OtherWatch, a, Deleted, "send list", "prove own-latch-5")
		s.reply(List, names("n_0000000002", own))
		s.reply(FindContender, Reply{Name: foreign}, "send find contender n_0000000002")
	})
	t.Run("names of this contender", func(t *testing.T) {
		cfg := electionConfig
		cfg.Naming = Prefix("n_")
		s := newScript(t, cfg)
		s.do(Input{Kind: Start})
		s.do(s.replied(Create, Reply{Prefix: "n_", Name: twin, Session: 1}))
		s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
		listed := names("n_0000000001", "n_0000000002", foreign, twin)
		s.do(s.replied(List, listed))
		s.reply(ReadPredecessor, Reply{}, "ignoring 1, first n_0000000003", "send list")
		s.reply(List, listed, "send find contender n_0000000002,n_0000000001")
		s.reply(FindContender, Reply{Names: []string{"n_0000000002", "n_0000000001"}}, "ignoring 2, first n_0000000002", "send list")
		s.reply(List, listed, "prove n_0000000005", "report n_0000000005 first, session 1, token 77")
	})
	t.Run("same number, no contender", func(t *testing.T) {
		s := join(t, electionConfig, twin, "a_0000000005")
		s.reply(FindContender, Reply{Names: []string{twin, "a_0000000005"}}, "ignoring 2, first n_0000000005", "send list")
		s.reply(List, names(twin, "a_0000000005", own), "prove own-latch-5", first)
	})
	t.Run("same number, has left", func(t *testing.T) {
		s := join(t, electionConfig, twin)
		s.reply(FindContender, Reply{}, "send list")
	})
	t.Run("same number, contender", func(t *testing.T) {
		s := join(t, electionConfig, twin)
		s.do(s.replied(FindContender, Reply{Name: twin}))
		require.ErrorIs(t, s.c.Reason(), connection.ErrAmbiguous)
		require.ErrorContains(t, s.c.Reason(), "/e/n_0000000005")
	})
}

// Names without a GUID do not show which znodes a create without a reply has left.
func TestReceiveList_PlainNames(t *testing.T) {
	cfg := electionConfig
	cfg.Naming = Prefix("n_")
	s := newScript(t, cfg)
	s.start("send create")
	s.reply(Create, Reply{Err: ErrLost, Prefix: "n_"}, "send search n_")
	s.reply(Search, Reply{}, "send create")
	s.reply(Create, Reply{Prefix: "n_", Name: "n_0000000005", Session: 1}, "send read own n_0000000005", "send list")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
	s.reply(List, names("n_0000000004", "n_0000000005"), "send search n_,n_")
	s.reply(Search, Reply{Names: []string{"n_0000000004", "n_0000000005"}}, "send delete n_0000000004", "removing n_0000000004", "send list")
	s.reply(List, names("n_0000000004", "n_0000000005"), "prove n_0000000005", "report n_0000000005 first, session 1, token 77")
}

// After a reconnect, watches are set again. Only the next contender lists the queue.
func TestResetWatches_OnlyNextListsQueue(t *testing.T) {
	reconnect := func(c *connection.State) { c.Epoch++ }
	s := follow(t, electionConfig)
	s.connect(reconnect, "send read own own-latch-5 reset", "send list reset")
	s.reply(List, names(a, own), "send read predecessor a-latch-1 reset")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
	s.reply(ReadPredecessor, Reply{Owner: 2})
	s.fired(OtherWatch, a, Deleted, first)

	s = join(t, electionConfig, a, b)
	s.do(s.replied(ReadPredecessor, Reply{Owner: 2}))
	s.do(s.replied(ReadBefore, Reply{Owner: 2}))
	s.connect(reconnect, "send read own own-latch-5 reset", "send read predecessor b-latch-2 reset", "send read before a-latch-1 reset")
}

// A watch that was set before the connection broke may never fire. It is set again later, and even
// later if that was done before.
func TestReceive_Doubt(t *testing.T) {
	s := join(t, electionConfig, a)
	s.reply(ReadPredecessor, Reply{Owner: 2, Doubt: true}, "set doubt 2s", "report own-latch-5 behind a-latch-1 next")
	s.expired(DoubtTimer, "send read own own-latch-5 reset", "send list reset")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77, Doubt: true}, "set doubt 10s")
}

// A deletion of the predecessor does not bring the turn while the watch on the contender's znode is in
// doubt: the znode may have been deleted before.
func TestSucceeds_OwnWatchInDoubt(t *testing.T) {
	s := newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(List, names(a, own))
	s.connect(func(c *connection.State) { c.Up, c.Epoch = false, 2 })
	s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
	s.connect(func(c *connection.State) { c.Up = true }, "send list reset")
	s.do(s.replied(ReadPredecessor, Reply{Owner: 2}))
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77, Doubt: true}, "set doubt 2s")
	s.reply(List, names(a, own))
	s.fired(OtherWatch, a, Deleted, "send list")
	s.reply(List, names(own), first)
}

// Without Lookahead, a contender prepares for its turn when it has waited for some time.
func TestWait_PrepareTimer(t *testing.T) {
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
	s.reply(List, names(a, b, own), "send read predecessor b-latch-2", "set prepare 10ms")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind b-latch-2")
	s.expired(PrepareTimer, "send list")
	s.reply(List, names(a, b, own), "send read before a-latch-1")
}

// A contender that waits for Lookahead others or more prepares for its turn when it has waited for some time. It
// then reads the znodes that the last listing has shown, and its own unless it has read that to learn its token.
func TestWait_PreparesLaterBehindMany(t *testing.T) {
	cfg := electionConfig
	cfg.Lookahead = 3
	s := newScript(t, cfg)
	s.start("send create")
	s.reply(Create, Reply{Name: own, Session: 1, Token: 77}, "send list")
	s.reply(List, names(a, b, "c-latch-0000000003", own), "send read predecessor c-latch-3", "set prepare 15ms")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind c-latch-3")
	s.expired(PrepareTimer, "send read own own-latch-5", "send read before b-latch-2")

	s = newScript(t, cfg)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
	s.reply(List, names(a, b, "c-latch-0000000003", own), "send read predecessor c-latch-3", "set prepare 15ms")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind c-latch-3")
	s.expired(PrepareTimer, "send read before b-latch-2")
}

// The state of the lease counts only after the contender has requested it.
func TestHold_EarlierLease(t *testing.T) {
	s := newScript(t, electionConfig)
	s.conn.Proven = true
	s.do(Input{Kind: Start})
	s.do(s.replied(Create, created))
	s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
	s.reply(List, names(own), "prove own-latch-5", first)
	s.connect(func(*connection.State) {}, first+" proven")
}

// Without a GUID, another contender can have the name of the contender's znode after the queue was
// created again, and the checks of the lease do not notice that.
func TestHold_LostIfNameIsUsedAgain(t *testing.T) {
	cfg := electionConfig
	cfg.Naming = Prefix("own-latch-")
	lost := []string{loses, "set reason 10ms", "send find reason reset"}
	for name, c := range map[string]struct {
		reply Reply
		want  []string
	}{
		"own":                  {Reply{Owner: 1, Token: 77}, nil},
		"of another session":   {Reply{Owner: 9, Token: 80}, lost},
		"of another contender": {Reply{Owner: 1, Token: 80}, lost},
		"does not exist":       {Reply{Err: zk.ErrNoNode}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			s := hold(t, cfg)
			s.connect(func(c *connection.State) { c.Up = false })
			s.connect(func(c *connection.State) { c.Up, c.Epoch = true, c.Epoch+1 }, "send read own own-latch-5 reset")
			s.reply(ReadOwn, c.reply, c.want...)
		})
	}
}

// A later reason does not replace the first one.
func TestLeave_FirstReasonCounts(t *testing.T) {
	s := hold(t, electionConfig)
	s.leave(errOther, reports, "rest", deletesOwn)
	s.leave(connection.ErrElectionOver)
	require.Equal(t, errOther, s.c.Reason())
}
