package contender

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// The turn is reported first, and then whether there is a valid lease.
func TestHold(t *testing.T) {
	s := newScript(t, electionConfig)
	s.do(Input{Kind: Start})
	s.do(s.replied(Create, created))
	s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
	s.reply(List, names(own), "prove own-latch-5", first)
	s.connect(func(c *Conn) { c.Proven = true }, first+" proven")
	s.connect(func(*Conn) {})
	s.connect(func(c *Conn) { c.Proven, c.Lapses = false, 1 }, first)
	s.connect(func(c *Conn) { c.Proven = true }, first+" proven")
}

// The state of the lease counts only after the contender has requested it.
func TestHold_EarlierLease(t *testing.T) {
	s := newScript(t, electionConfig)
	s.conn.Proven = true
	s.do(Input{Kind: Start})
	s.do(s.replied(Create, created))
	s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
	s.reply(List, names(own), "prove own-latch-5", first)
	s.connect(func(*Conn) {}, first+" proven")
}

// A lease that has expired and is valid again is reported as both.
func TestHold_LeaseHasLapsed(t *testing.T) {
	s := hold(t, electionConfig)
	s.connect(func(c *Conn) { c.Lapses = 1 }, first, first+" proven")
}

// The znode may be found to be missing by the watch or by a check of the lease.
func TestHold_Loses(t *testing.T) {
	lost := []string{"report znode was deleted by another client", "set reason 10ms", "send find reason"}
	s := hold(t, electionConfig)
	s.fired(OwnWatch, own, Deleted, lost...)
	s = hold(t, electionConfig)
	s.connect(func(c *Conn) { c.Missing = true }, lost...)

	s = follow(t, electionConfig)
	s.fired(OwnWatch, own, Deleted, lost...)
	s = follow(t, electionConfig)
	s.connect(func(c *Conn) { c.Missing = true }, lost...)
}

// Without a GUID, another contender can have the name of the contender's znode after the queue was
// created again, and the checks of the lease do not notice that.
func TestHold_PlainName(t *testing.T) {
	cfg := electionConfig
	cfg.Naming = Prefix("own-latch-")
	lost := []string{"report znode was deleted by another client", "set reason 10ms", "send find reason reset"}
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
			s.connect(func(c *Conn) { c.Up = false })
			s.connect(func(c *Conn) { c.Up, c.Epoch = true, c.Epoch+1 }, "send read own own-latch-5 reset", "set own 2ms")
			s.reply(ReadOwn, c.reply, c.want...)
		})
	}
}

// A contender that did not watch its znode while it was queued does so when its turn has lasted for
// some time.
func TestHold_OwnTimer(t *testing.T) {
	alone := created
	alone.Token, alone.Alone = 77, true
	s := newScript(t, lockConfig)
	s.start("send create")
	s.reply(Create, alone, "prove own-latch-5", first, "set own 2ms")
	s.expired(OwnTimer, "send read own own-latch-5")
	s.reply(ReadOwn, Reply{Owner: 1, Token: 77})
	s.expired(OwnTimer)
}

// With Policy.Admit, a contender wakes its follower once.
func TestHold_Notify(t *testing.T) {
	cfg := lockConfig
	cfg.Admit = func(Listing) Admission { return Admission{Place: First, Followed: true} }
	holding := func(t *testing.T) *script {
		s := newScript(t, cfg)
		s.do(Input{Kind: Start})
		s.do(s.replied(Create, created))
		s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77}))
		s.reply(List, names(own, later), "prove own-latch-5", first, "send notify own-latch-5")
		return s
	}
	s := holding(t)
	s.reply(Notify, Reply{})
	s.connect(func(*Conn) {})

	for _, err := range []error{zk.ErrNoNode, zkerror.ErrConnClosed} { // the follower wakes anyway
		s = holding(t)
		s.reply(Notify, Reply{Err: err})
		require.True(t, s.c.Holding())
	}
	s = holding(t)
	s.do(s.replied(Notify, Reply{Err: zk.ErrNoAuth}))
	require.Equal(t, zk.ErrNoAuth, s.c.Reason())
}
