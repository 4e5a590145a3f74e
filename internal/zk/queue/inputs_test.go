package queue

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// A reply that the event of the contender's znode has preceded is not lost if the contender leaves because
// of the event: the removal of its other znodes waits for it.
func TestNext_ReplyAfterEventOfOwnZnode(t *testing.T) {
	reply := input(contender.Replied)
	d := &driver{deferred: reply}
	require.Same(t, reply, d.next(t.Context()))
	require.Nil(t, d.deferred)
}

// A contender that has left does not report the replies for which its removal waits: the same
// candidate may have joined again.
func TestReceive_LeavingIsNotObserved(t *testing.T) {
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

// A contender that looks for the reason why its znode was deleted reports the deletion repeatedly. Its
// timers remain set until it leaves.
func TestExecute_TimersUntilLeaving(t *testing.T) {
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
