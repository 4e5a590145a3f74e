package contender

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// The znodes of these tests. In the texts of outputs, describe omits the zeros of their numbers: "a-latch-1".
const (
	a     = "a-latch-0000000001"
	b     = "b-latch-0000000002"
	own   = "own-latch-0000000005"
	later = "z-latch-0000000009"

	ownPrefix = "own-latch-"
)

var errOther = errors.New("other error")

// script passes inputs to a contender and requires the outputs, in the form that describe returns.
type script struct {
	t       *testing.T
	c       *Contender
	conn    connection.State
	sent    [len(requestNames)]*Request // the requests without a reply
	outputs []string                    // the outputs of the last step
}

// newScript returns a script in session 1, whose connection is up. The first input must be Start.
func newScript(t *testing.T, cfg Config) *script {
	return &script{t: t, c: New(&cfg), conn: connection.State{Session: 1, Up: true, Epoch: 1}}
}

// step passes an input to the contender and requires the outputs.
func (s *script) step(in Input, want ...string) {
	s.t.Helper()
	s.do(in)
	require.Equal(s.t, want, s.outputs)
}

// do passes an input to the contender.
func (s *script) do(in Input) {
	s.outputs = nil
	for _, o := range s.c.Step(s.conn, &in, nil) {
		if o.Kind == Send {
			require.Nil(s.t, s.sent[o.Request.Kind], "a second request of the same kind: %v", o.Request)
			s.sent[o.Request.Kind] = &o.Request
		}
		s.outputs = append(s.outputs, describe(&o))
	}
}

// start passes the input Start, which must be the first.
func (s *script) start(want ...string) {
	s.t.Helper()
	s.step(Input{Kind: Start}, want...)
}

// reply delivers the reply to a request.
func (s *script) reply(kind RequestKind, reply Reply, want ...string) {
	s.t.Helper()
	s.step(s.replied(kind, reply), want...)
}

func (s *script) replied(kind RequestKind, reply Reply) Input {
	s.t.Helper()
	r := s.sent[kind]
	require.NotNil(s.t, r, "no request %v is outstanding", kind)
	s.sent[kind] = nil
	return Input{Kind: Replied, Request: *r, Reply: reply}
}

// fired delivers the event of a watch.
func (s *script) fired(w Watch, name string, e Event, want ...string) {
	s.t.Helper()
	s.step(Input{Kind: Fired, Watch: w, Name: name, Err: e.err(), Safe: true}, want...)
}

// expired delivers the expiration of a timer.
func (s *script) expired(timer Timer, want ...string) {
	s.t.Helper()
	s.step(Input{Kind: Expired, Timer: timer}, want...)
}

// leave asks the contender to leave.
func (s *script) leave(err error, want ...string) {
	s.t.Helper()
	s.step(Input{Kind: Leave, Err: err}, want...)
}

// connect changes the state of the connection, and passes the input ConnChanged.
func (s *script) connect(change func(*connection.State), want ...string) {
	s.t.Helper()
	change(&s.conn)
	s.step(Input{Kind: ConnChanged}, want...)
}

// names returns the reply to a listing.
func names(names ...string) Reply { return Reply{Names: names, QueueCzxid: 70} }

// created is the reply to the create of the znode own.
var created = Reply{Prefix: ownPrefix, Name: own, Session: 1}

// join returns a script whose contender has created the znode own and read it, and has received a listing with the
// given names.
func join(t *testing.T, cfg Config, listed ...string) *script {
	t.Helper()
	s := newScript(t, cfg)
	s.do(Input{Kind: Start})
	s.do(s.replied(Create, created))
	s.do(s.replied(ReadOwn, Reply{Owner: 1, Token: 77, Ephemeral: true}))
	s.do(s.replied(List, names(append(listed, own)...)))
	return s
}

// follow returns a script whose contender watches its predecessor, the znode a, which is the only earlier
// contender.
func follow(t *testing.T, cfg Config) *script {
	t.Helper()
	s := join(t, cfg, a)
	s.do(s.replied(ReadPredecessor, Reply{Owner: 2, Ephemeral: true}))
	return s
}

// hold returns a script whose contender is holding and has a valid lease.
func hold(t *testing.T, cfg Config) *script {
	t.Helper()
	s := join(t, cfg)
	s.conn.Proven = true
	s.do(Input{Kind: ConnChanged})
	return s
}

// electionConfig is the configuration of an election.
var electionConfig = Config{Dir: "/e", Naming: CuratorLatch, Tombstone: tombstone, QueueCzxid: 70, QueueSession: 1, Lookahead: 10}

// lockConfig is the configuration of a contender for a mutex.
var lockConfig = Config{Dir: "/l", Naming: CuratorLatch, CanMakeQueue: true}

var timerNames = [...]string{"patience", "reason", "prepare", "own", "doubt", "standby"}

// describe returns the text by which the tests identify an output.
func describe(o *Output) string {
	var words []string
	add := func(set bool, word string) {
		if set {
			words = append(words, word)
		}
	}
	switch o.Kind {
	case Send:
		r := &o.Request
		words = []string{"send", r.String()}
		add(r.To != "", "to "+r.To)
		add(r.Watched, "watched")
		add(r.Reset, "reset")
		add(len(r.Prefixes) > 0, strings.Join(r.Prefixes, ","))
		add(r.Last, "last")
		add(r.Err != nil, fmt.Sprintf("because: %v", r.Err))
	case Report:
		s := &o.State
		words = []string{"report"}
		add(s.Name != "", s.Name)
		add(s.Predecessor != "", "behind "+s.Predecessor)
		add(s.Next, "next")
		add(s.First, fmt.Sprintf("first, session %d, token %d", s.Session, s.Token))
		add(s.Proven, "proven")
		add(s.Err != nil, fmt.Sprint(s.Err))
	case Set:
		words = []string{"set", timerNames[o.Timer], o.After.String()}
	case Stop:
		words = []string{"stop", timerNames[o.Timer]}
	case Prove:
		words = []string{"prove", o.Name}
	case Rest:
		words = []string{"rest"}
	case Renamed:
		words = []string{"renamed", fmt.Sprint(o.Err)}
	case Ignoring:
		words = []string{fmt.Sprintf("ignoring %d, first", o.Count), o.Name}
	case Removing:
		words = []string{"removing", o.Name}
	case Bury:
		words = []string{"bury", o.Name}
	case Finish:
		words = []string{"finish", fmt.Sprint(o.Err)}
	}
	return strings.ReplaceAll(strings.Join(words, " "), "-000000000", "-")
}

// If names have no GUID, another contender may have the same name in the next session, because the servers may have
// lost their data. So a contender that ends in another session does not delete the znode with its name.
func TestStep_AnotherSession_PlainName(t *testing.T) {
	cfg := electionConfig
	cfg.Naming = Prefix("own-latch-")
	for state, reach := range map[string]func(t *testing.T) *script{
		"queued":  func(t *testing.T) *script { return follow(t, cfg) },
		"holding": func(t *testing.T) *script { return hold(t, cfg) },
	} {
		t.Run(state, func(t *testing.T) {
			s := reach(t)
			s.connect(func(c *connection.State) { c.Session = 2 }, "report session expired", "rest", finishes)
		})
		t.Run(state+", leaves while disconnected", func(t *testing.T) {
			s := reach(t)
			s.conn.Up = false
			s.leave(errOther, reports, "rest")
			s.connect(func(c *connection.State) { c.Session, c.Up = 2, true }, finishes)
		})
	}
	t.Run("created in the previous session", func(t *testing.T) {
		s := newScript(t, cfg)
		s.start("send create")
		s.reply(Create, Reply{Prefix: ownPrefix, Name: own}, "send read own own-latch-5", "send list")
		s.reply(ReadOwn, Reply{Owner: 9, Token: 77}, "report session expired", finishes)
	})
}

// A contender reports the deletion of its znode immediately, and the reason when the servers have answered.
func TestReceiveReason(t *testing.T) {
	makesQueue := electionConfig
	makesQueue.CanMakeQueue = true
	mayVanish := electionConfig
	mayVanish.QueueMayVanish = true
	unconfirmed := electionConfig
	unconfirmed.QueueUnconfirmed = true
	for name, c := range map[string]struct {
		cfg   Config
		conn  func(*connection.State)
		reply Reply
		want  error
	}{
		"by another client":            {electionConfig, nil, Reply{QueueCzxid: 70}, connection.ErrDeleted},
		"tombstone":                    {electionConfig, nil, Reply{Ended: true}, connection.ErrElectionOver},
		"queue deleted":                {electionConfig, nil, Reply{}, connection.ErrElectionOver},
		"queue deleted, can make it":   {makesQueue, nil, Reply{}, connection.ErrDeleted},
		"another queue":                {electionConfig, nil, Reply{QueueCzxid: 71}, connection.ErrElectionOver},
		"queue deleted, may vanish":    {mayVanish, nil, Reply{}, connection.ErrElectionOver},
		"a later queue, may vanish":    {mayVanish, nil, Reply{QueueCzxid: 78}, connection.ErrElectionOver},
		"its queue, made again":        {mayVanish, nil, Reply{QueueCzxid: 71}, connection.ErrDeleted},
		"another queue, unconfirmed":   {unconfirmed, nil, Reply{QueueCzxid: 71}, connection.ErrDeleted},
		"any queue":                    {lockConfig, nil, Reply{QueueCzxid: 71}, connection.ErrDeleted},
		"unreadable":                   {electionConfig, nil, Reply{Err: errOther}, connection.ErrDeleted},
		"by Close":                     {electionConfig, nil, Reply{Err: connection.ErrConnClosed}, connection.ErrConnClosed},
		"by Close, known from the":     {electionConfig, func(c *connection.State) { c.Closed = true }, Reply{QueueCzxid: 70}, connection.ErrConnClosed},
		"with the session":             {electionConfig, func(c *connection.State) { c.Session = 2 }, Reply{QueueCzxid: 70}, connection.ErrSessionExpired},
		"with the session and data":    {electionConfig, func(c *connection.State) { c.Session = 2 }, Reply{}, connection.ErrSessionExpired},
		"session over, no new session": {electionConfig, func(c *connection.State) { c.Session = 0 }, Reply{}, connection.ErrSessionExpired},
	} {
		t.Run(name, func(t *testing.T) {
			s := hold(t, c.cfg)
			s.fired(OwnWatch, own, Deleted, loses, "set reason 10ms", "send find reason")
			if c.conn != nil {
				c.conn(&s.conn)
			}
			s.reply(FindReason, c.reply, "report "+c.want.Error(), "rest", "finish <nil>")
			require.Equal(t, c.want, s.c.Reason())
		})
	}
}

// While the servers do not answer what the reason of the deletion is, the contender reports the deletion a second
// time. Patience limits how long it waits for the reason.
func TestReceiveTimer_ReasonUnknown(t *testing.T) {
	cfg := electionConfig
	cfg.Patience = time.Second
	s := hold(t, cfg)
	s.fired(OwnWatch, own, Deleted, loses, "set reason 10ms", "set patience 3s", "send find reason")
	s.expired(ReasonTimer, loses)
	s.expired(PatienceTimer, loses, "rest", "finish <nil>")
	require.Equal(t, connection.ErrDeleted, s.c.Reason())
}

const renamed = "renamed-latch-0000000005"

// rename asks the contender to take another name.
func (s *script) rename(want ...string) {
	s.t.Helper()
	s.step(Input{Kind: Rename, Name: renamed}, want...)
}

// TestRename_KeepsTurn checks that a rename does not end the hold, and that the deletion of the previous znode is not
// taken for that of the new znode.
func TestRename_KeepsTurn(t *testing.T) {
	s := hold(t, lockConfig)
	s.rename("send replace own-latch-5 to renamed-latch-5")
	// The deletion of the old znode by the rename is no loss.
	s.do(Input{Kind: Fired, Watch: OwnWatch, Name: own, Err: connection.ErrDeleted, Safe: true})
	require.True(t, s.c.Holding())
	s.connect(func(c *connection.State) { c.Missing = true })
	s.reply(Replace, Reply{}, "prove renamed-latch-5", "report renamed-latch-5 first, session 1, token 77 proven", "renamed <nil>")
	require.Equal(t, renamed, s.c.Name())
	s.conn.Missing = false
	s.fired(OwnWatch, own, Deleted) // the event of the deletion arrives after the rename
	s.leave(errOther, "report other error", "rest", "send delete renamed-latch-5 last because: other error")
	s.reply(Delete, Reply{}, "finish <nil>")
}

// TestRename_Fails checks that a rejected rename neither changes the name nor ends the hold, and that a
// missing znode ends the hold.
func TestRename_Fails(t *testing.T) {
	s := hold(t, lockConfig)
	s.rename("send replace own-latch-5 to renamed-latch-5")
	s.reply(Replace, Reply{Err: zk.ErrNoAuth}, "renamed "+zk.ErrNoAuth.Error())
	require.Equal(t, own, s.c.Name())
	require.True(t, s.c.Holding())

	s = hold(t, lockConfig)
	s.rename("send replace own-latch-5 to renamed-latch-5")
	s.reply(Replace, Reply{Err: zk.ErrNoNode}, loses, "set reason 10ms", "send find reason")
}

// TestRename_OnlyWhileHolding checks that the contender sends no Replace before its turn, or while a rename is in
// progress.
func TestRename_OnlyWhileHolding(t *testing.T) {
	s := follow(t, electionConfig)
	s.rename()
	s = hold(t, electionConfig)
	s.rename("send replace own-latch-5 to renamed-latch-5")
	s.rename()
}

// A contender that leaves during a rename deletes its znode under the old or the new name, whichever it has.
func TestRename_WhileLeaving(t *testing.T) {
	s := hold(t, lockConfig)
	s.rename("send replace own-latch-5 to renamed-latch-5")
	s.leave(errOther, "report other error", "rest", "send delete own-latch-5 last because: other error")
	s.reply(Delete, Reply{Err: zk.ErrNoNode}, "send delete renamed-latch-5 last because: other error")
	s.reply(Delete, Reply{}, "finish <nil>")
}

var requestNames = [...]string{
	"create", "make queue", "search", "list", "read own", "read predecessor", "read before", "inspect", "find contender",
	"find reason", "delete", "notify", "replace",
}

func (k RequestKind) String() string { return requestNames[k] }

func (r Request) String() string {
	if name := r.Name + strings.Join(r.Names, ","); name != "" {
		return fmt.Sprintf("%v %s", r.Kind, name)
	}
	return r.Kind.String()
}
