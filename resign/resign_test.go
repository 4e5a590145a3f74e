package resign_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/resign"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "/election"

// withServer runs f in a bubble, with a server and an operator who sends requests.
func withServer(t *testing.T, f func(h *bubble.Test)) {
	t.Helper()
	bubble.Run(t, func(h *bubble.Test) {
		h.Cleanup(func() { time.Sleep(time.Minute) }) // lets requests in flight end before the clients are closed
		h.Operator = h.Connect()
		f(h)
	})
}

// candidate is a candidate of the election under test.
type candidate struct {
	*leaderelection.Election
	done chan struct{} // closed when ElectLeader has returned
}

// join creates a candidate, and starts it.
func join(h *bubble.Test, conn *zk.Conn, opts ...leaderelection.Option) *candidate {
	c := newCandidate(h, conn, opts...)
	c.start()
	return c
}

// newCandidate creates a candidate that is not started.
func newCandidate(h *bubble.Test, conn *zk.Conn, opts ...leaderelection.Option) *candidate {
	e, err := leaderelection.NewElection(conn, node, append([]leaderelection.Option{leaderelection.WithCreateNode()}, opts...)...)
	require.NoError(h, err)
	h.Cleanup(func() { _ = e.Resign() })
	return &candidate{e, make(chan struct{})}
}

func (c *candidate) start() {
	go func() {
		defer close(c.done)
		_ = c.ElectLeader()
	}()
	synctest.Wait()
}

// resignOnRequest makes the candidate resign after a request.
func (c *candidate) resignOnRequest() {
	requested := c.ResignRequested()
	go func() {
		select {
		case <-requested:
			_ = c.Resign()
		case <-c.done:
		}
	}()
	synctest.Wait()
}

// isClosed reports whether c is closed. It must not be used for a channel that receives values.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// request calls resign.Request with a timeout.
func request(h *bubble.Test, id string, timeout time.Duration) error {
	return requestOn(h.Operator, id, timeout)
}

func requestOn(conn *zk.Conn, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return resign.Request(ctx, conn, node, id)
}

// nodeData returns the data of the election node.
func nodeData(h *bubble.Test) string {
	data, _, err := h.Operator.Get(node)
	require.NoError(h, err)
	return string(data)
}

// TestTransfer_MakesLastCandidateLead checks that Transfer makes the last candidate of an election the leader,
// and that no request remains.
func TestTransfer_MakesLastCandidateLead(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		a, b, c := join(h, h.Connect()), join(h, h.Connect()), join(h, h.Connect())
		a.resignOnRequest()
		b.resignOnRequest()
		require.NoError(h, resign.Transfer(h.Context(), h.Operator, node, c.ID()))
		synctest.Wait()
		require.Equal(h, leaderelection.Leader, c.Current().Role)
		require.True(h, isClosed(a.done))
		require.True(h, isClosed(b.done))
		require.Empty(h, nodeData(h), "a request remains")
	})
}

// TestTransfer_KeepsLeaderIfCandidateDoesNotListen checks that the leader does not resign if a candidate between
// the leader and the candidate that is to lead does not listen to requests.
func TestTransfer_KeepsLeaderIfCandidateDoesNotListen(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		a, _, c := join(h, h.Connect()), join(h, h.Connect()), join(h, h.Connect())
		a.resignOnRequest()
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(h, resign.Transfer(ctx, h.Operator, node, c.ID()), context.DeadlineExceeded)
		require.Equal(h, leaderelection.Leader, a.Current().Role)
		require.Empty(h, nodeData(h), "a request remains")
	})
}

// TestRequest_MakesLeaderResign checks that a leader resigns after a request, that no other candidate receives
// the request, and that the request does not remain.
func TestRequest_MakesLeaderResign(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		a, b := join(h, h.Connect()), join(h, h.Connect())
		a.resignOnRequest()
		b.resignOnRequest()
		start := time.Now()
		require.NoError(h, request(h, a.ID(), time.Minute))
		synctest.Wait()
		require.Equal(h, start, time.Now(), "the call has waited")
		require.True(h, isClosed(a.done))
		require.Equal(h, leaderelection.Leader, b.Current().Role)
		require.False(h, isClosed(b.ResignRequested()), "another candidate has received the request")
		require.Empty(h, nodeData(h), "the request remains")

		require.ErrorIs(h, request(h, a.ID(), time.Minute), resign.ErrNoCandidate)
		require.Empty(h, nodeData(h))
	})
}

// TestRequest_ReachesFollowerThatListensLater checks that a follower receives a request that was made before
// the follower called ResignRequested.
func TestRequest_ReachesFollowerThatListensLater(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		a, b := join(h, h.Connect()), join(h, h.Connect())
		result := make(chan error, 1)
		go func() { result <- request(h, b.ID(), time.Minute) }()
		synctest.Wait()
		require.False(h, isClosed(b.done), "a candidate that does not receive requests has resigned")
		b.resignOnRequest()
		require.NoError(h, <-result)
		synctest.Wait()
		require.True(h, isClosed(b.done))
		require.Equal(h, leaderelection.Leader, a.Current().Role)
	})
}

// TestRequest_ConcurrentCallsDoNotOverwrite checks that neither of two concurrent requests overwrites the other.
func TestRequest_ConcurrentCallsDoNotOverwrite(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		a, b := join(h, h.Connect()), join(h, h.Connect())
		hold, release := bubble.Hold(h)
		h.Server.Before(zktest.Match{Op: zktest.OpSetData, Path: node, Nth: 1}, hold)
		results := make(chan error, 2)
		go func() { results <- request(h, a.ID(), time.Minute) }()
		synctest.Wait()
		other := h.Connect()
		go func() { results <- requestOn(other, b.ID(), time.Minute) }()
		synctest.Wait()
		release() // the first write now fails, because the second one has changed the data in the meantime
		synctest.Wait()
		rejected := h.Server.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpSetData && errors.Is(e.Code, zk.ErrBadVersion) })
		require.NotEmpty(h, rejected)
		a.resignOnRequest()
		b.resignOnRequest()
		require.NoError(h, <-results)
		require.NoError(h, <-results)
		require.Empty(h, nodeData(h))
	})
}

// TestRequest_SurvivesWithdrawalOfOtherRequest checks that the candidate receives a request after another
// caller has withdrawn a request to the same candidate while the candidate was disconnected.
func TestRequest_SurvivesWithdrawalOfOtherRequest(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		conn, other := h.Connect(), h.Connect()
		a := join(h, conn)
		a.resignOnRequest()
		down := h.Server.Before(zktest.Match{Op: zktest.OpConnect, Session: conn.SessionID()}, zktest.Cut)
		h.Server.DropConnections(conn.SessionID())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- request(h, a.ID(), time.Second) }()
		synctest.Wait()
		go func() { second <- requestOn(other, a.ID(), time.Minute) }()
		require.ErrorIs(h, <-first, context.DeadlineExceeded)
		bubble.Advance(time.Second)
		require.False(h, isClosed(a.done), "the candidate was not disconnected")
		down.Remove()
		begin := time.Now()
		require.NoError(h, <-second)
		require.Less(h, time.Since(begin), 10*time.Second)
		synctest.Wait()
		require.True(h, isClosed(a.done))
		require.Empty(h, nodeData(h), "a request remains")
	})
}

// TestRequest_SucceedsIfOtherRequestHasSucceeded checks that Request returns nil in this case: Request reads
// the candidate's znode, the candidate leaves, another caller removes its own request to the same candidate,
// and only then Request reads the requests.
func TestRequest_SucceedsIfOtherRequestHasSucceeded(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		other := h.Connect()
		a := join(h, h.Connect())
		results := make(chan error, 2)
		go func() { results <- request(h, a.ID(), time.Minute) }()
		synctest.Wait()
		hold, release := bubble.Hold(h)
		h.Server.Before(zktest.Match{Op: zktest.OpGetData, Path: node, Session: other.SessionID(), Nth: 2}, hold)
		go func() { results <- requestOn(other, a.ID(), time.Minute) }()
		synctest.Wait()
		a.resignOnRequest()
		require.NoError(h, <-results)
		require.Empty(h, nodeData(h))
		release()
		require.NoError(h, <-results)
		require.Empty(h, nodeData(h))
		require.Zero(h, h.Server.Log().Session(other.SessionID()).Count(zktest.OpSetData))
	})
}

// TestRequest_IsWithdrawnAfterBeingAddedAgain checks that a request does not remain if Request adds it again,
// because another caller has withdrawn it, just before the context is done.
func TestRequest_IsWithdrawnAfterBeingAddedAgain(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		other := h.Connect()
		a := join(h, h.Connect())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- request(h, a.ID(), time.Second) }()
		synctest.Wait()
		hold, release := bubble.Hold(h)
		h.Server.Before(zktest.Match{Op: zktest.OpSetData, Session: other.SessionID(), Nth: 1}, hold)
		go func() { second <- requestOn(other, a.ID(), 2*time.Second) }()
		require.ErrorIs(h, <-first, context.DeadlineExceeded)
		bubble.Advance(1500 * time.Millisecond)
		require.Empty(h, nodeData(h))
		release()
		require.ErrorIs(h, <-second, context.DeadlineExceeded)
		require.Empty(h, nodeData(h))
		require.Equal(h, 2, h.Server.Log().Session(other.SessionID()).Count(zktest.OpSetData), "added and removed")
	})
}

// TestRequest_DoesNotReachRejoinedCandidate checks that a request to the ID of an earlier session does not
// reach the candidate in its next session, and that a request to its new ID does.
func TestRequest_DoesNotReachRejoinedCandidate(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		conn := h.Connect()
		a := join(h, conn, leaderelection.WithRejoin())
		a.resignOnRequest()
		id := a.ID()
		require.NoError(h, h.Server.ExpireSession(conn.SessionID()))
		bubble.Advance(time.Minute)
		require.NotEqual(h, id, a.ID())
		require.ErrorIs(h, request(h, id, time.Second), resign.ErrNoCandidate)
		require.False(h, isClosed(a.done))
		require.NoError(h, request(h, a.ID(), time.Second))
		synctest.Wait()
		require.True(h, isClosed(a.done))
	})
}

// TestRequest_ReachesCandidateThatDoesNotKnowItsID checks that a candidate receives a request that was made
// before the reply with its ID has arrived.
func TestRequest_ReachesCandidateThatDoesNotKnowItsID(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		conn := h.Connect()
		c := newCandidate(h, conn)
		c.resignOnRequest()
		hold, release := bubble.Hold(h)
		h.Server.After(zktest.Match{Op: zktest.OpMulti, Path: node, Session: conn.SessionID(), Nth: 1}, hold)
		c.start()
		require.Empty(h, c.ID())
		all, err := leaderelection.Candidates(h.Context(), h.Operator, node)
		require.NoError(h, err)
		require.Len(h, all, 1)
		result := make(chan error, 1)
		go func() { result <- request(h, all[0].ID, time.Minute) }()
		synctest.Wait()
		release()
		require.NoError(h, <-result)
		synctest.Wait()
		require.True(h, isClosed(c.done))
	})
}

// TestRequest_ReachesCandidateAfterReconnect checks that a candidate receives a request that was made while its
// connection was down and the client library could not set its watch again.
func TestRequest_ReachesCandidateAfterReconnect(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		conn := h.Connect()
		a := join(h, conn)
		a.resignOnRequest()
		lost := h.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID()}, zktest.Fail(zktest.Code(-5)))
		defer lost.Remove()
		h.Server.DropConnections(conn.SessionID())
		require.NoError(h, request(h, a.ID(), time.Minute))
		synctest.Wait()
		require.True(h, isClosed(a.done))
		require.Empty(h, nodeData(h))
	})
}

// TestRequest_ReachesCandidateAfterLossOfSharedWatch checks that a candidate receives a request if it uses a
// watch that an earlier candidate has left and that the client library has lost at a reconnect.
func TestRequest_ReachesCandidateAfterLossOfSharedWatch(t *testing.T) {
	for _, lose := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost: %v", lose), func(t *testing.T) {
			withServer(t, func(h *bubble.Test) {
				conn := h.Connect()
				a := join(h, conn)
				a.ResignRequested()
				synctest.Wait()
				kept := h.Server.Before(zktest.Match{Op: zktest.OpSetData, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrNoAuth))
				require.NoError(h, a.Resign())
				<-kept.Ran()
				if lose {
					h.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
				}
				h.Server.DropConnections(conn.SessionID())
				bubble.Advance(3 * time.Second)
				b := join(h, conn)
				b.resignOnRequest()
				require.NoError(h, request(h, b.ID(), time.Minute))
				synctest.Wait()
				require.True(h, isClosed(b.done))
			})
		})
	}
}

// TestRequest_SucceedsAfterLostReply checks that Request returns nil if the reply to its write was lost and the
// candidate has resigned before Request reads the data again.
func TestRequest_SucceedsAfterLostReply(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		a, b := join(h, h.Connect()), join(h, h.Connect())
		a.resignOnRequest()
		h.Server.After(zktest.Match{Op: zktest.OpSetData, Path: node, Nth: 1}, zktest.Cut)
		require.NoError(h, request(h, a.ID(), time.Minute))
		synctest.Wait()
		require.True(h, isClosed(a.done))
		require.Equal(h, leaderelection.Leader, b.Current().Role)
		require.Empty(h, nodeData(h), "the request remains")
	})
}

// TestRequest_KeepsForeignData checks that Request does not overwrite the data of another application.
func TestRequest_KeepsForeignData(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		_, err := h.Operator.Create(node, []byte("precious"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		a := join(h, h.Connect())
		a.resignOnRequest()
		require.ErrorIs(h, request(h, a.ID(), time.Minute), resign.ErrForeignData)
		require.Equal(h, "precious", nodeData(h))
		require.False(h, isClosed(a.done))
	})
}

// TestRequest_ReturnsErrPermission checks that Request returns ErrPermission if the connection may not write
// the election node.
func TestRequest_ReturnsErrPermission(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		_, err := h.Operator.Create(node, nil, 0, zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermDelete))
		require.NoError(h, err)
		a := join(h, h.Connect())
		require.ErrorIs(h, request(h, a.ID(), time.Minute), leaderelection.ErrPermission)
	})
}

// TestRequest_RejectsInvalidArguments checks that Request rejects a nil connection, an invalid path and an ID
// that is not that of a candidate of the election.
func TestRequest_RejectsInvalidArguments(t *testing.T) {
	withServer(t, func(h *bubble.Test) {
		const id = node + "/_c_x-latch-0000000001"
		ctx := h.Context()
		require.ErrorIs(h, resign.Request(ctx, nil, node, id), leaderelection.ErrInvalid)
		require.ErrorIs(h, resign.Request(ctx, h.Operator, "election", id), leaderelection.ErrInvalid)
		for _, id := range []string{"", node, node + "/x", "/other/_c_x-latch-0000000001", "_c_x-latch-0000000001", node + "/a/_c_x-latch-0000000001"} {
			require.ErrorIs(h, resign.Request(ctx, h.Operator, node, id), leaderelection.ErrInvalid, id)
		}
		require.ErrorIs(h, resign.Request(ctx, h.Operator, node, id), leaderelection.ErrNoElection)
		_, err := h.Operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		require.ErrorIs(h, resign.Request(ctx, h.Operator, node, id), resign.ErrNoCandidate)
	})
}

// TestRequest_IsWithdrawnWhenContextIsDone checks that no request remains, whenever the context of Request is
// done, and that no request is written after the call has returned.
func TestRequest_IsWithdrawnWhenContextIsDone(t *testing.T) {
	for timeout := 100 * time.Millisecond; timeout < 3*time.Second; timeout += 100 * time.Millisecond {
		withServer(t, func(h *bubble.Test) {
			a := join(h, h.Connect())
			requested := a.ResignRequested()
			synctest.Wait()
			h.Server.Delay(zktest.BothWays, 300*time.Millisecond, h.Operator.SessionID())
			err := request(h, a.ID(), timeout)
			require.ErrorIs(h, err, context.DeadlineExceeded)
			written := h.Server.Log().Count(zktest.OpSetData)
			bubble.Advance(10 * time.Second)
			require.Empty(h, nodeData(h), timeout)
			if timeout < 1200*time.Millisecond { // too short for a write: a Get and a Children come first
				require.Zero(h, h.Server.Log().Count(zktest.OpSetData), timeout)
				require.False(h, isClosed(requested))
			}
			require.LessOrEqual(h, written, 2)
		})
	}
}

// TestRequest_IsWithdrawnAfterReconnect checks that no request remains after a reconnect if the connection has
// broken at a read, at the write or at the reply to the write, and the context is done in the meantime.
func TestRequest_IsWithdrawnAfterReconnect(t *testing.T) {
	for name, c := range map[string]struct {
		op    zktest.Op
		after bool // the reply is lost, not the request
	}{
		"first read": {zktest.OpGetData, false}, "second read": {zktest.OpGetChildren2, false},
		"write": {zktest.OpSetData, false}, "reply to the write": {zktest.OpSetData, true},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, func(h *bubble.Test) {
				a := join(h, h.Connect())
				requested := a.ResignRequested()
				synctest.Wait()
				session := h.Operator.SessionID()
				down := h.Server.Before(zktest.Match{Op: zktest.OpConnect, Session: session}, zktest.Cut)
				set := h.Server.Before
				if c.after {
					set = h.Server.After
				}
				set(zktest.Match{Op: c.op, Path: node, Session: session, Nth: 1}, zktest.Cut)
				start := time.Now()
				err := request(h, a.ID(), time.Second)
				require.ErrorIs(h, err, context.DeadlineExceeded)
				if c.op != zktest.OpSetData {
					require.Equal(h, time.Second, time.Since(start), "no write was sent")
				} else {
					require.Equal(h, time.Second+limit.Confirm, time.Since(start))
					require.ErrorContains(h, err, "the request may not be withdrawn")
				}
				down.Remove()
				bubble.Advance(10 * time.Second)
				require.Empty(h, nodeData(h))
				require.Equal(h, c.after, isClosed(requested))
			})
		})
	}
}
