package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/ephemeral"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Member is a member of a group in this process. Its methods may be called from any goroutine. It must
// be closed.
type Member struct {
	group  *Group
	id     string
	run    func(context.Context, *Shard) error // the function that was passed to Run; nil for Join
	caller context.Context                     // the context that was passed to Run, without its cancellation
	keeper *ephemeral.Keeper                   // maintains the znode of the member

	stop    context.CancelCauseFunc // makes the member leave, for the given reason
	owned   chan Owned
	drained chan struct{} // closed when the member holds no shard and no function runs
	reason  error         // why the member has left; set before drained is closed
	ended   chan struct{} // closed when all goroutines have ended
	removal error         // why the removal of the member's znode is not confirmed; set before ended is closed
}

// Owned is the set of shards that a member owns.
type Owned struct {
	// Shards are the shards that are held and should be kept, sorted by name. Shards that were in an
	// earlier set and are not in this one are lost, or should be released: see
	// [Shard.ReleaseRequested].
	Shards []*Shard
	// Err is set only in the last element, and is the reason why the channel was closed.
	Err error
}

func (g *Group) join(ctx context.Context, id string, run func(context.Context, *Shard) error) (*Member, error) {
	path := g.setup.Path + "/members/" + id
	if id == "" || strings.Contains(id, "/") || connection.CheckPath(path) != nil {
		return nil, fmt.Errorf("%w: ID %q is not a valid znode name", recipes.ErrInvalid, id)
	}
	m := &Member{
		group: g, id: id, run: run, caller: context.WithoutCancel(ctx),
		owned: make(chan Owned, 1), drained: make(chan struct{}), ended: make(chan struct{}),
	}
	f := newFollower(m)
	data, _ := json.Marshal(f.record) // Marshal cannot fail, because a record contains only strings and numbers
	if err := ephemeral.CheckSize(path, data, g.setup.ACL); err != nil {
		return nil, err
	}
	m.keeper = ephemeral.Keep(g.setup, ephemeral.Config{Path: path, Data: data, Events: g.reportMember, Report: func(s ephemeral.State) {
		var taken *ephemeral.TakenError
		limit.SendNewest(f.takenOver, errors.As(s.Err, &taken))
	}})
	if err := m.keeper.AwaitPresent(ctx); err != nil {
		_ = m.keeper.Close(ctx, recipes.ErrClosed)
		return nil, g.setup.Fail("join", g.setup.Path, err)
	}
	var life context.Context
	life, m.stop = context.WithCancelCause(context.Background())
	go f.run(life)
	return m, nil
}

// ID returns the ID of the member.
func (m *Member) ID() string { return m.id }

// Owned returns a channel that delivers the set of owned shards when it has changed. A slow reader
// receives only the newest set. The program must release each shard whose release is requested. A
// shard that is lost or given away before it is received is not delivered. The last element has an
// Err: [recipes.ErrClosed] after Close, [recipes.ErrConnClosed], [recipes.ErrPermission] or another
// error of ZooKeeper. All calls return the same channel.
func (m *Member) Owned() <-chan Owned { return m.owned }

// Done returns a channel that is closed when the member has left: no shard is held any more.
func (m *Member) Done() <-chan struct{} { return m.drained }

// Err returns nil until Done is closed, and then the reason: see [Member.Owned].
func (m *Member) Err() error {
	select {
	case <-m.drained:
		return m.reason
	default:
		return nil
	}
}

// Close leaves the group, so that other members take over the shards. The release of all shards is
// requested, and they are released at the end of the grace period at the latest. Close returns nil
// when no shard is held any more and the removal of the member's znode is confirmed. It blocks for at
// most two seconds, and otherwise returns an error that wraps [recipes.ErrUnconfirmed]; the member
// then leaves in the background. It may be called repeatedly, for instance after Done is closed.
func (m *Member) Close() error {
	m.stop(recipes.ErrClosed)
	err := limit.ErrConfirm
	if limit.Await(m.ended, time.Now().Add(limit.Confirm)) {
		err = m.removal
	}
	if err == nil {
		return nil
	}
	return m.group.setup.Fail("leave", m.group.setup.Path, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err))
}
