package contender

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

const first = "report own-latch-5 first, session 1, token 77"

// A contender that watches its znode and its predecessor, the only earlier contender, needs no
// request when the predecessor leaves.
func TestWait_TurnWithoutARequest(t *testing.T) {
	s := follow(t, electionConfig)
	s.fired(OtherWatch, a, Deleted, first)
	require.True(t, s.c.Holding())
}

// In these cases the deletion of the predecessor does not prove that the contender's znode still
// exists, or that no other contender is ahead.
func TestWait_TurnNeedsAListing(t *testing.T) {
	t.Run("the session may have expired", func(t *testing.T) {
		s := follow(t, electionConfig)
		s.step(Input{Kind: Fired, Watch: OtherWatch, Name: a, Event: Deleted, Safe: false}, "send list")
		s.reply(List, names(own), first)
	})
	t.Run("the connection is down", func(t *testing.T) {
		s := follow(t, electionConfig)
		s.conn.Up = false
		s.fired(OtherWatch, a, Deleted, "send list")
		s.conn.Up = true
		s.reply(List, names(own), first)
	})
	t.Run("the contender's znode is not watched", func(t *testing.T) {
		s := follow(t, electionConfig)
		s.fired(OwnWatch, own, Changed, "send read own own-latch-5", "send list")
		s.fired(OtherWatch, a, Deleted)
		s.reply(List, names(a, own), "send list")
		s.reply(List, names(own), first, "set own 2ms")
	})
	t.Run("another contender is ahead", func(t *testing.T) {
		s := join(t, electionConfig, a, b)
		s.do(s.replied(ReadPredecessor, Reply{Owner: 2}))
		s.do(s.replied(ReadBefore, Reply{Owner: 2}))
		s.fired(OtherWatch, b, Deleted, "send list")
		s.reply(List, names(a, own), "report own-latch-5 behind a-latch-1", "prove own-latch-5")
	})
	t.Run("the listing is older than the connection", func(t *testing.T) {
		s := newScript(t, electionConfig)
		s.do(Input{Kind: Start})
		s.do(s.replied(Create, created))
		s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
		s.connect(func(c *Conn) { c.Epoch = 2 }, "send read own own-latch-5 reset")
		s.reply(List, names(a, own), "send read predecessor a-latch-1 reset", "prove own-latch-5")
		s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
		s.do(s.replied(ReadPredecessor, Reply{Owner: 2}))
		s.fired(OtherWatch, a, Deleted, "send list")
	})
	t.Run("the predecessor is replaceable", func(t *testing.T) {
		cfg := electionConfig
		cfg.Replaceable = func(name string) bool { return name == a }
		s := follow(t, cfg)
		s.fired(OtherWatch, a, Deleted, "prove own-latch-5", "send list")
		s.reply(List, names("a2-latch-0000000001", own), "send read predecessor a2-latch-1")
	})
}

// A contender lists the queue when the one before its predecessor leaves, so that it knows that it
// is next.
func TestWait_ContenderBeforeThePredecessor(t *testing.T) {
	s := newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
	s.reply(List, names(later, b, own, a), "send read predecessor b-latch-2", "send read before a-latch-1")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind b-latch-2")
	s.reply(ReadBefore, Reply{Owner: 2})
	require.True(t, s.c.Watches(a))
	s.fired(OtherWatch, a, Deleted, "send list", "prove own-latch-5")
	s.reply(List, names(later, a, b, own), "send list") // as of a time before the event
	s.reply(List, names(later, b, own))
	s.fired(OtherWatch, b, Deleted, first)
}

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

func TestReceiveOther(t *testing.T) {
	read := func(t *testing.T) *script { return join(t, electionConfig, a, b) }
	t.Run("the predecessor has left", func(t *testing.T) {
		s := read(t)
		s.reply(ReadPredecessor, Reply{Err: zk.ErrNoNode}, "send list")
	})
	t.Run("the contender before it has left", func(t *testing.T) {
		s := read(t)
		s.reply(ReadBefore, Reply{Err: zk.ErrNoNode}, "send list", "prove own-latch-5")
	})
	t.Run("the predecessor cannot be read", func(t *testing.T) {
		s := read(t)
		s.do(s.replied(ReadPredecessor, Reply{Err: zk.ErrNoAuth}))
		require.ErrorIs(t, s.c.Reason(), zk.ErrNoAuth)
	})
	t.Run("the contender before it cannot be read", func(t *testing.T) {
		s := read(t)
		s.reply(ReadBefore, Reply{Err: zk.ErrNoAuth})
		s.connect(func(*Conn) {})
	})
	t.Run("the predecessor has changed since the listing", func(t *testing.T) {
		s := join(t, electionConfig, a)
		s.reply(ReadPredecessor, Reply{Owner: 2, Version: 1}, "send list", "report own-latch-5 behind a-latch-1")
	})
	t.Run("the connection has broken since", func(t *testing.T) {
		s := join(t, electionConfig, a, b)
		s.connect(func(c *Conn) { c.Epoch = 2 }, "send read own own-latch-5 reset")
		s.reply(ReadPredecessor, Reply{Owner: 2}, "send read predecessor b-latch-2 reset")
	})
}

func TestReceiveOwn(t *testing.T) {
	for name, c := range map[string]struct {
		reply Reply
		want  error
	}{
		"another session": {Reply{Owner: 9, Token: 77}, zkerror.ErrSessionExpired},
		"not permitted":   {Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, electionConfig)
			s.start("send create")
			s.reply(Create, created, "send read own own-latch-5", "send list")
			s.do(s.replied(ReadOwn, c.reply))
			require.Equal(t, c.want, s.c.Reason())
		})
	}
	s := newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(ReadOwn, Reply{Err: zk.ErrNoNode}, "report znode was deleted by another client", "set reason 10ms", "send find reason")

	// The watch may be lost if the connection has broken since.
	s = newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.connect(func(c *Conn) { c.Epoch = 2 })
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77}, "send read own own-latch-5 reset")
}

func TestReceiveList_Ends(t *testing.T) {
	for name, c := range map[string]struct {
		conn  func(*Conn)
		reply Reply
		want  error
	}{
		"tombstone":            {nil, names(own, tombstone), zkerror.ErrElectionOver},
		"no queue":             {nil, Reply{Err: zk.ErrNoNode}, zkerror.ErrElectionOver},
		"another queue":        {nil, Reply{Names: []string{own}, QueueCzxid: 71}, zkerror.ErrElectionOver},
		"not permitted":        {nil, Reply{Err: zk.ErrNoAuth}, zk.ErrNoAuth},
		"a number twice":       {nil, names(own, "twin-0000000005"), zkerror.ErrAmbiguous},
		"the session is over":  {func(c *Conn) { c.Session = 2 }, names(), zkerror.ErrSessionExpired},
		"a lease has found it": {func(c *Conn) { c.Missing = true }, names(own), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, electionConfig)
			s.do(Input{Kind: Start})
			s.do(s.replied(Create, created))
			if c.conn != nil {
				c.conn(&s.conn)
			}
			s.do(s.replied(List, c.reply))
			if s.sent[FindContender] != nil {
				require.Equal(t, []string{"send find contender twin-5"}, s.outputs)
				s.do(s.replied(FindContender, Reply{Name: "twin-0000000005"}))
			}
			if c.want == nil {
				require.Equal(t, "report znode was deleted by another client", s.outputs[0])
				return
			}
			require.ErrorIs(t, s.c.Reason(), c.want)
			require.Equal(t, describe(&Output{Kind: Report, State: State{Err: s.c.Reason()}}), s.outputs[0])
		})
	}
}

// The reads of a session do not go back in time, so a znode that is not listed was deleted.
func TestReceiveList_OwnZnodeIsMissing(t *testing.T) {
	s := newScript(t, electionConfig)
	s.do(Input{Kind: Start})
	s.do(s.replied(Create, created))
	s.reply(List, names(a), "report znode was deleted by another client", "set reason 10ms", "send find reason")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77}) // an earlier read
	s.reply(FindReason, Reply{Ended: true}, "report election is over", "finish <nil>")
}

// Only a znode with an unrecognized name is inspected: it is a contender if it is ephemeral.
func TestReceiveFound(t *testing.T) {
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
		require.ErrorIs(t, s.c.Reason(), zkerror.ErrAmbiguous)
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
func TestResetWatches(t *testing.T) {
	reconnect := func(c *Conn) { c.Epoch++ }
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
	s.reply(ReadPredecessor, Reply{Owner: 2, Doubt: true}, "set doubt 2s", "report own-latch-5 behind a-latch-1")
	s.expired(DoubtTimer, "send read own own-latch-5 reset", "send list reset")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77, Doubt: true}, "set doubt 10s")
}

// A deletion of the predecessor does not bring the turn while the watch on the contender's znode is in
// doubt: the znode may have been deleted before.
func TestIsNext_OwnWatchInDoubt(t *testing.T) {
	s := newScript(t, electionConfig)
	s.start("send create")
	s.reply(Create, created, "send read own own-latch-5", "send list")
	s.reply(List, names(a, own))
	s.connect(func(c *Conn) { c.Up, c.Epoch = false, 2 })
	s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
	s.connect(func(c *Conn) { c.Up = true }, "send list reset")
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
	s.reply(List, names(a, b, own), "send read predecessor b-latch-2", "set prepare 5ms")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind b-latch-2")
	s.expired(PrepareTimer, "send list")
	s.reply(List, names(a, b, own), "send read before a-latch-1")
}

// The next contender keeps a lease in advance for a limited time.
func TestWait_StandbyTimer(t *testing.T) {
	cfg := electionConfig
	cfg.Standby = time.Minute
	s := newScript(t, cfg)
	s.do(Input{Kind: Start})
	s.do(s.replied(Create, created))
	s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
	s.reply(List, names(a, own), "send read predecessor a-latch-1", "prove own-latch-5", "set standby 1m0s")
	s.reply(ReadPredecessor, Reply{Owner: 2}, "report own-latch-5 behind a-latch-1")
	s.expired(StandbyTimer, "rest")
	s.fired(OtherWatch, a, Deleted, "prove own-latch-5", first)
}

// Policy.Blocks selects the earlier contenders that a contender waits for.
func TestWait_Blocks(t *testing.T) {
	cfg := electionConfig
	cfg.Blocks = func(name string) bool { return name == a }
	s := join(t, cfg, a, b)
	require.True(t, s.c.IsPredecessor(a))
	s.do(s.replied(ReadPredecessor, Reply{Owner: 2}))
	s.fired(OtherWatch, a, Deleted, first)
}

// With Policy.Admit, a contender lists the queue when it may have its turn.
func TestWait_Admit(t *testing.T) {
	var admission Admission
	cfg := lockConfig
	cfg.Admit = func(l Listing) Admission {
		require.Equal(t, own, l.Own)
		return admission
	}
	t.Run("any departure may bring the turn", func(t *testing.T) {
		admission = Admission{Place: BehindHolders}
		s := newScript(t, cfg)
		s.do(Input{Kind: Start})
		s.do(s.replied(Create, created))
		s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
		s.reply(List, names(a, b, own), "report own-latch-5 behind b-latch-2", "prove own-latch-5", "send list watched")
		s.reply(List, names(a, b, own))
		require.True(t, s.c.WatchesQueue())
		admission = Admission{Place: First}
		s.fired(QueueWatch, "", Changed, "send list watched")
		s.reply(List, names(b, own), first)
	})
	t.Run("the predecessor writes its znode", func(t *testing.T) {
		admission = Admission{}
		s := join(t, cfg, a, b)
		s.reply(ReadPredecessor, Reply{Owner: 2})
		admission = Admission{Place: First}
		s.fired(OtherWatch, b, Changed, "prove own-latch-5", "send list watched")
		s.reply(List, names(a, b, own), first)
	})
	t.Run("error", func(t *testing.T) {
		admission = Admission{Err: errOther}
		s := join(t, cfg, a)
		require.Equal(t, errOther, s.c.Reason())
	})
	t.Run("an orphan does not count", func(t *testing.T) {
		counted := cfg
		counted.Admit = func(l Listing) Admission {
			require.True(t, l.Counts(a))
			require.True(t, l.Counts(own))
			require.False(t, l.Counts("first-latch-0000000004"))
			return Admission{Place: First}
		}
		s := newScript(t, counted)
		s.do(Input{Kind: Start})
		s.do(s.replied(Create, Reply{Err: ErrLost, Prefix: "first-latch-"}))
		s.do(s.replied(Search, Reply{}))
		s.do(s.replied(Create, created))
		s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
		s.do(s.replied(List, names(a, "first-latch-0000000004", own)))
		require.True(t, s.c.Holding())
	})
}
