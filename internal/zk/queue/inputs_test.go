package queue

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// TestNext_ReturnsDeferredReply checks that next returns the reply that the driver has deferred because of an event
// of the contender's znode. If the contender leaves because of this event, the removal of its other znodes
// waits for the reply.
func TestNext_ReturnsDeferredReply(t *testing.T) {
	reply := input(contender.Replied)
	d := &driver{deferred: reply}
	require.Same(t, reply, d.next(t.Context()))
	require.Nil(t, d.deferred)
}

// TestReceive_ReportsNoReplyAfterLeaving checks that receive does not report replies to the observer after the
// contender has left. The removal of the znodes waits for these replies, but the same candidate may have joined
// again.
func TestReceive_ReportsNoReplyAfterLeaving(t *testing.T) {
	for name, reply := range map[string]contender.Reply{"watched": {}, "departed": {Err: zk.ErrNoNode}} {
		observed := 0
		cfg := &Config{Options: connection.Options{Conn: new(zk.Conn)}, Observer: &Observer{
			Watched: func(string) { observed++ },
			Vacated: func() { observed++ },
		}}
		d := &driver{cfg: cfg, machine: contender.New(&cfg.Config)}
		receive := func() {
			request := contender.Request{Kind: contender.ReadPredecessor, Name: "a"}
			d.receive(&result{request: request, reply: reply, path: "/a"})
		}
		receive()
		require.Equal(t, 1, observed, name)
		d.machine.Step(connection.State{}, &contender.Input{Kind: contender.Leave, Err: connection.ErrElectionOver}, nil)
		receive()
		require.Equal(t, 1, observed, name)
	}
}

// TestExecute_KeepsTimersUntilLeaving checks that execute keeps the timers of a contender that reports repeatedly
// that its znode was deleted, while it looks for the reason, until the contender leaves.
func TestExecute_KeepsTimersUntilLeaving(t *testing.T) {
	cfg := &Config{Options: connection.Options{Conn: new(zk.Conn)}}
	d := &driver{cfg: cfg, machine: contender.New(&cfg.Config), report: func(State) {}}
	d.execute(&contender.Output{Kind: contender.Set, Timer: contender.PatienceTimer, After: time.Hour})
	deleted := &contender.Output{Kind: contender.Report, State: contender.State{Err: connection.ErrDeleted}}
	d.execute(deleted)
	require.Len(t, d.timers, 1)
	d.machine.Step(connection.State{}, &contender.Input{Kind: contender.Leave, Err: connection.ErrDeleted}, nil)
	d.execute(deleted)
	require.Empty(t, d.timers)
}
