package leaderelection

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// askWorld is a server, and candidates that listen.
type askWorld struct {
	*testing.T
	srv      *zktest.Server
	operator *zk.Conn
}

func playAsking(t *testing.T, f func(w *askWorld)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // nothing is under way when the clients are closed
		w := &askWorld{T: t, srv: zktest.Start(t)}
		w.operator = w.connect()
		f(w)
	})
}

func (w *askWorld) connect() *zk.Conn {
	conn, _, err := w.srv.Connect(4 * time.Second)
	require.NoError(w, err)
	return conn
}

// stands has a candidate take part.
func (w *askWorld) stands(conn *zk.Conn, opts ...Option) *Election {
	e, err := NewElection(conn, "/election", append([]Option{WithCreateNode()}, opts...)...)
	require.NoError(w, err)
	go e.ElectLeader()
	w.Cleanup(func() { _ = e.Resign() })
	synctest.Wait()
	return e
}

// ask asks, for a while at most.
func (w *askWorld) ask(id string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return AskToResign(w.operator, "/election", id, WithContext(ctx))
}

// data is that of the election node.
func (w *askWorld) data() string {
	data, _, err := w.operator.Get("/election")
	require.NoError(w, err)
	return string(data)
}

// resigns has the candidate resign when it is asked.
func resigns(e *Election) {
	asked := e.ResignRequested()
	go func() {
		select {
		case <-asked:
			_ = e.Resign()
		case <-e.candidacy.done:
		}
	}()
	synctest.Wait()
}

func TestAskToResign(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a, b := w.stands(w.connect()), w.stands(w.connect())
		resigns(a)
		resigns(b)
		began := time.Now()
		require.NoError(w, w.ask(a.ID(), time.Minute))
		synctest.Wait()
		require.Equal(w, began, time.Now(), "no time passes on an idle fake network")
		require.True(w, closed(a.candidacy.done))
		require.Equal(w, Leader, b.Current().Role)
		require.False(w, closed(b.ResignRequested()), "another one was asked")
		require.Empty(w, w.data(), "the request is left")

		require.ErrorIs(w, w.ask(a.ID(), time.Minute), ErrNoCandidate)
		require.Empty(w, w.data())
	})
}

// A follower can be asked too, and one asks before it listens.
func TestAskAFollower(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a, b := w.stands(w.connect()), w.stands(w.connect())
		asked := make(chan error, 1)
		go func() { asked <- w.ask(b.ID(), time.Minute) }()
		synctest.Wait()
		require.False(w, closed(b.candidacy.done), "nothing happens to one that does not listen")
		resigns(b)
		require.NoError(w, <-asked)
		synctest.Wait()
		require.True(w, closed(b.candidacy.done))
		require.Equal(w, Leader, a.Current().Role)
	})
}

// Nobody listens: the request is taken back, and who listens later is not asked.
func TestAskOneWhoDoesNotListen(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a := w.stands(w.connect())
		require.ErrorIs(w, w.ask(a.ID(), time.Second), context.DeadlineExceeded)
		require.Empty(w, w.data())
		resigns(a)
		w.pass(time.Minute)
		require.False(w, closed(a.candidacy.done))
	})
}

func (w *askWorld) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Two are asked at a time, and none is forgotten.
func TestAskTwoAtATime(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a, b := w.stands(w.connect()), w.stands(w.connect())
		hold := make(chan struct{})
		w.srv.Before(zktest.Match{Op: zktest.OpSetData, Path: "/election", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			<-hold
			return zktest.Pass(q)
		})
		asked := make(chan error, 2)
		go func() { asked <- w.ask(a.ID(), time.Minute) }()
		synctest.Wait()
		other := w.connect()
		limited, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		go func() { asked <- AskToResign(other, "/election", b.ID(), WithContext(limited)) }()
		synctest.Wait()
		close(hold) // what it writes was made of data that are old by now
		synctest.Wait()
		resigns(a)
		resigns(b)
		require.NoError(w, <-asked)
		require.NoError(w, <-asked)
		require.Empty(w, w.data())
	})
}

// A request goes with the candidate that it names: one that rejoins in another session is
// another one.
func TestAskOneWhoRejoins(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		conn := w.connect()
		a := w.stands(conn, WithRejoin())
		resigns(a)
		id := a.ID()
		w.srv.ExpireSession(conn.SessionID())
		w.pass(time.Minute)
		require.NotEqual(w, id, a.ID())
		require.ErrorIs(w, w.ask(id, time.Second), ErrNoCandidate)
		require.False(w, closed(a.candidacy.done))
		require.NoError(w, w.ask(a.ID(), time.Second))
		synctest.Wait()
		require.True(w, closed(a.candidacy.done))
	})
}

// A request that is made before the candidate knows its own ID is heard.
func TestAskBeforeTheCandidateKnowsItsID(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		conn := w.connect()
		e, err := NewElection(conn, "/election", WithCreateNode())
		require.NoError(w, err)
		resigns(e)
		hold := make(chan struct{})
		w.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			<-hold
			return zktest.Pass(q)
		})
		go e.ElectLeader()
		synctest.Wait()
		require.Empty(w, e.ID())
		all, err := Candidates(w.operator, "/election")
		require.NoError(w, err)
		require.Len(w, all, 1)
		asked := make(chan error, 1)
		go func() { asked <- w.ask(all[0].ID, time.Minute) }()
		synctest.Wait()
		close(hold)
		require.NoError(w, <-asked)
		synctest.Wait()
		require.True(w, closed(e.candidacy.done))
	})
}

// A change that comes while the connection is down, or with a watch that the client
// library could not set anew, is heard.
func TestAskWhileTheConnectionIsDown(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		conn := w.connect()
		a := w.stands(conn)
		resigns(a)
		lost := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID()}, zktest.Fail(zktest.Code(-5)))
		defer lost.Remove()
		w.srv.DropConnections(conn.SessionID())
		require.NoError(w, w.ask(a.ID(), time.Minute))
		synctest.Wait()
		require.True(w, closed(a.candidacy.done))
		require.Empty(w, w.data())
	})
}

// The data of an election node can be somebody's.
func TestAskWhereTheNodeHasDataOfItsOwn(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		_, err := w.operator.Create("/election", []byte("precious"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		a := w.stands(w.connect())
		resigns(a)
		require.ErrorIs(w, w.ask(a.ID(), time.Minute), ErrForeignData)
		require.Equal(w, "precious", w.data())
		require.False(w, closed(a.candidacy.done))
	})
}

func TestAskWithoutPermission(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		_, err := w.operator.Create("/election", nil, 0, zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermDelete))
		require.NoError(w, err)
		a := w.stands(w.connect())
		require.ErrorIs(w, w.ask(a.ID(), time.Minute), ErrPermission)
	})
}

func TestAskRefuses(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		require.ErrorIs(w, AskToResign(nil, "/election", "/election/x"), ErrNilConn)
		require.ErrorIs(w, AskToResign(w.operator, "election", "/election/x"), ErrInvalidPath)
		for _, id := range []string{"", "/election", "/election/x", "/other/_c_x-latch-0000000001", "_c_x-latch-0000000001", "/election/a/_c_x-latch-0000000001"} {
			require.ErrorIs(w, AskToResign(w.operator, "/election", id), ErrInvalidOption, id)
		}
		require.ErrorIs(w, AskToResign(w.operator, "/election", "/election/_c_x-latch-0000000001"), ErrNoElection)
		_, err := w.operator.Create("/election", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		require.ErrorIs(w, AskToResign(w.operator, "/election", "/election/_c_x-latch-0000000001"), ErrNoCandidate)
	})
}

// watchChannels returns how many channels the client library holds for watches.
func watchChannels(conn *zk.Conn) int {
	watchers := reflect.ValueOf(conn).Elem().FieldByName("watchers")
	n := 0
	for _, k := range watchers.MapKeys() {
		n += watchers.MapIndex(k).Len()
	}
	return n
}

// The number of watches does not grow with the number of candidates that have listened,
// one after another or at the same time.
func TestListenersLeaveOneWatch(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		conn := w.connect()
		for range 10 {
			var both []*Election
			for range 2 {
				e, err := NewElection(conn, "/election", WithCreateNode())
				require.NoError(w, err)
				e.ResignRequested()
				both = append(both, e)
			}
			synctest.Wait()
			for _, e := range both {
				require.NoError(w, e.Resign())
				require.False(w, closed(e.requested))
			}
			require.Equal(w, 1, watchChannels(conn))
		}
	})
}

// The watch of a candidate that has left is lost at a reconnect while no candidate
// listens. The next candidate is asked all the same.
func TestAskAfterALostSpareWatch(t *testing.T) {
	for _, lose := range []bool{false, true} {
		playAsking(t, func(w *askWorld) {
			conn := w.connect()
			a := w.stands(conn)
			a.ResignRequested()
			synctest.Wait()
			require.NoError(w, a.Resign())
			synctest.Wait()
			if lose {
				w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
			}
			w.srv.DropConnections(conn.SessionID())
			w.pass(3 * time.Second)
			b := w.stands(conn)
			resigns(b)
			require.NoError(w, w.ask(b.ID(), time.Minute))
			synctest.Wait()
			require.True(w, closed(b.candidacy.done))
		})
	}
}

// A caller that gives up leaves no request, whatever was sent by then, and no request is
// written after the call.
func TestAskGivenUp(t *testing.T) {
	for limit := 100 * time.Millisecond; limit < 3*time.Second; limit += 100 * time.Millisecond {
		playAsking(t, func(w *askWorld) {
			a := w.stands(w.connect())
			asked := a.ResignRequested()
			synctest.Wait()
			w.srv.Delay(zktest.BothWays, 300*time.Millisecond, w.operator.SessionID())
			err := w.ask(a.ID(), limit)
			require.ErrorIs(w, err, context.DeadlineExceeded)
			written := w.srv.Log().Count(zktest.OpSetData)
			w.pass(10 * time.Second)
			require.Empty(w, w.data(), limit)
			if limit < 1200*time.Millisecond { // a Get and a Children take that long
				require.Zero(w, w.srv.Log().Count(zktest.OpSetData), limit)
				require.False(w, closed(asked))
			}
			require.LessOrEqual(w, written, 2)
		})
	}
}

// The same with a connection that breaks at one of the reads or at the write.
func TestAskGivenUpWhileDisconnected(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSetData} {
		playAsking(t, func(w *askWorld) {
			a := w.stands(w.connect())
			asked := a.ResignRequested()
			synctest.Wait()
			id := w.operator.SessionID()
			down := w.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
			w.srv.Before(zktest.Match{Op: op, Path: "/election", Session: id, Nth: 1}, zktest.Cut)
			began := time.Now()
			err := w.ask(a.ID(), time.Second)
			require.ErrorIs(w, err, context.DeadlineExceeded)
			if op != zktest.OpSetData {
				require.Equal(w, time.Second, time.Since(began), "no write was sent")
			} else {
				require.Equal(w, time.Second+limit.Confirm, time.Since(began))
				require.ErrorContains(w, err, "the request may not be withdrawn")
			}
			down.Remove()
			w.pass(time.Minute)
			require.Empty(w, w.data())
			require.False(w, closed(asked))
		})
	}
}

// The answer to the write is lost, and comes after the call: the request is withdrawn as
// soon as the connection is back.
func TestAskGivenUpAfterTheWrite(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a := w.stands(w.connect())
		id := w.operator.SessionID()
		down := w.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
		w.srv.After(zktest.Match{Op: zktest.OpSetData, Path: "/election", Session: id, Nth: 1}, zktest.Cut)
		err := w.ask(a.ID(), time.Second)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.ErrorContains(w, err, "the request may not be withdrawn")
		down.Remove()
		w.pass(10 * time.Second)
		require.Empty(w, w.data())
	})
}

// An election that is deleted ends listening, and is no request.
func TestListenerEndsWithTheElection(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a := w.stands(w.connect())
		resigns(a)
		require.NoError(w, DeleteElection(w.operator, "/election"))
		w.pass(time.Second)
		require.True(w, closed(a.candidacy.done))
		require.False(w, closed(a.requested))
	})
}

// The reply to the request is lost, and the candidate has resigned before the client reads again.
func TestAskWithALostReply(t *testing.T) {
	playAsking(t, func(w *askWorld) {
		a, b := w.stands(w.connect()), w.stands(w.connect())
		resigns(a)
		w.srv.After(zktest.Match{Op: zktest.OpSetData, Path: "/election", Nth: 1}, zktest.Cut)
		require.NoError(w, w.ask(a.ID(), time.Minute))
		synctest.Wait()
		require.True(w, closed(a.candidacy.done))
		require.Equal(w, Leader, b.Current().Role)
		require.Empty(w, w.data(), "the request is left")
	})
}
