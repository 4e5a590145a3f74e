package migration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/migration"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const sessionTimeout = 4 * time.Second

// backends contains the two backends of a migration from ZooKeeper to a changefeed store.
type backends struct {
	t     electiontest.TB
	srv   *zktest.Server
	table *memory.Table

	mu       sync.Mutex
	programs map[int]*program
}

// program contains the connections of one instance of the program.
type program struct {
	old   *bubble.Client
	store *storetest.Faulty
}

func newBackends(t electiontest.TB) *backends {
	b := &backends{t: t, srv: zktest.Start(t), table: memory.NewTable(), programs: map[int]*program{}}
	t.Cleanup(func() {
		for _, p := range b.programs {
			p.old.SetCut(false)
			if err := p.store.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		time.Sleep(time.Minute) // lets requests in flight end before a connection is closed
	})
	return b
}

func (b *backends) program(i int) *program {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.programs[i] == nil {
		old, err := bubble.NewClient(b.srv, sessionTimeout)
		if err != nil {
			b.t.Fatalf("connect: %v", err)
		}
		_, err = old.Conn.Create("/report", nil, 0, zk.WorldACL(zk.PermAll))
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			b.t.Fatalf("create: %v", err)
		}
		b.programs[i] = &program{old, storetest.NewFaulty(b.table.Store("report"), uint64(i))}
	}
	return b.programs[i]
}

func (b *backends) oldCandidate(i int) migration.NewCandidateFunc {
	return func(context.Context) (leaderelection.Candidate, error) {
		return leaderelection.NewElection(b.program(i).old.Conn, "/report", leaderelection.WithRejoin(), leaderelection.WithSessionTimeout(sessionTimeout))
	}
}

func (b *backends) newCandidate(i int) migration.NewCandidateFunc {
	return func(context.Context) (leaderelection.Candidate, error) {
		return changefeed.NewElection(b.program(i).store, changefeed.WithID(fmt.Sprint("candidate ", i)))
	}
}

// newGroupFactory returns a factory of groups of candidates of both elections. cut separates a program from one backend
// or from both.
func newGroupFactory(cut func(*program) (heal func())) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		b := newBackends(t)
		cutProgram := func(i int) func() { return cut(b.program(i)) }
		return &electiontest.Group{
			New: func(i int) (leaderelection.Candidate, error) {
				return migration.NewCandidate(context.Background(), b.oldCandidate(i), b.newCandidate(i))
			},
			Crash:    func(i int) { cutProgram(i) },
			Cut:      cutProgram,
			Patience: time.Minute,
		}
	}
}

func cutOffOldBackend(p *program) (heal func()) {
	p.old.SetCut(true)
	return func() { p.old.SetCut(false) }
}

func cutOffNewBackend(p *program) (heal func()) { return p.store.Cut() }

func cutOffBothBackends(p *program) (heal func()) {
	healOld, healNew := cutOffOldBackend(p), cutOffNewBackend(p)
	return func() { healOld(); healNew() }
}

// TestCandidate_SatisfiesContract checks that a candidate of two elections satisfies the contract of
// candidates, whichever backend it loses.
func TestCandidate_SatisfiesContract(t *testing.T) {
	for name, cut := range map[string]func(*program) func(){"old": cutOffOldBackend, "new": cutOffNewBackend, "both": cutOffBothBackends} {
		t.Run(name, func(t *testing.T) { electiontest.Run(t, newGroupFactory(cut), electiontest.WithFakeTime()) })
	}
}
