package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// Group is a set of shards and of members that own them. It does not keep local state. Any number of
// Groups can refer to the group at one path, and each may be used by any number of goroutines.
type Group struct {
	setup    *recipe.Setup
	settings settings
	members  *group.Group // the members with their records
	ids      *group.Group // the members with their IDs only
	spec     *value.Value[Spec]
	plan     *value.Value[Plan]
}

// NewGroup returns the group at path. It sends no request. Errors: [recipes.ErrInvalid].
func NewGroup(conn *zk.Conn, path string, opts ...Option) (*Group, error) {
	own := settings{grace: 10 * time.Second, weight: 1}
	s, err := recipe.NewOwn(conn, path, &own, opts, Option.ApplyShard)
	if err == nil {
		err = own.validate()
	}
	if err != nil {
		return nil, err
	}
	s.Log = s.Log.With("shards", path)
	g := &Group{setup: s, settings: own}
	// The layout in opts applies only to the locks, and not to the znodes of members.
	plain := recipe.WithLayout(recipe.Curator)
	if g.members, err = group.New(conn, path+"/members", s.Settings(), plain); err != nil {
		return nil, err
	}
	if g.ids, err = group.New(conn, path+"/members", s.Settings(), plain, group.WithoutData()); err != nil {
		return nil, err
	}
	if g.spec, err = value.New(conn, g.specPath(), recipes.JSONCodec[Spec](), s.Settings()); err != nil {
		return nil, err
	}
	if g.plan, err = value.New(conn, g.planPath(), planCodec, s.Settings()); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *Group) specPath() string { return g.setup.Path + "/spec" }

func (g *Group) planPath() string { return g.setup.Path + "/plan" }

// mutex returns the lock of a shard. Its holder owns the shard. name is the name that operators see for the
// contender of this process.
func (g *Group) mutex(shard, name string) (*lock.Mutex, error) {
	escaped := url.PathEscape(shard)
	if escaped == "." || escaped == ".." {
		escaped = strings.ReplaceAll(escaped, ".", "%2E")
	}
	return lock.NewMutex(g.setup.Conn, g.setup.Path+"/locks/"+escaped, lock.WithName(name), g.setup.Settings())
}

// Spec returns the current Spec. Errors are those of [value.Value.Get].
func (g *Group) Spec(ctx context.Context) (Spec, error) {
	spec, _, err := g.spec.Get(ctx)
	return spec, g.setup.Fail("read the spec of", g.setup.Path, err)
}

// errUnchanged is the error with which Update ends its transaction without a write, because its function
// has changed nothing.
var errUnchanged = errors.New("the function of Update has not changed the Spec")

// Update changes the Spec by f, and returns the result. It may be called at any time, by members and
// by other clients. f gets the current Spec, and is called again if another client has changed it in
// the meantime. Nothing is written if f changes nothing. If f returns an error, Update returns it,
// wrapped. Other errors: [recipes.ErrInvalid] if the Spec is not valid or too large, and those of
// [value.Value.Update].
func (g *Group) Update(ctx context.Context, f func(*Spec) error) (Spec, error) {
	var same Spec
	spec, err := g.spec.Update(ctx, func(was Spec) (Spec, error) {
		copied, _ := json.Marshal(was) // Marshal cannot fail, because a Spec contains only strings and numbers
		var is Spec
		_ = json.Unmarshal(copied, &is)
		if err := f(&is); err != nil {
			return is, err
		}
		if err := is.normalize(); err != nil {
			return is, err
		}
		for _, name := range is.Shards {
			if _, err := g.mutex(name, ""); err != nil {
				return is, fmt.Errorf("shard %.40q: use a shorter name: %w", name, err)
			}
		}
		if text, _ := json.Marshal(is); bytes.Equal(text, copied) {
			same = is
			return is, errUnchanged
		}
		return is, nil
	})
	if errors.Is(err, errUnchanged) {
		return same, nil
	}
	return spec, g.setup.Fail("update the spec of", g.setup.Path, err)
}

// Plan returns the current plan, including the moves in progress. It sends one request, without a
// watch. The zero Plan means that no plan exists yet. Errors are those of [value.Value.Get].
func (g *Group) Plan(ctx context.Context) (Plan, error) {
	plan, _, err := g.plan.Get(ctx)
	return plan, g.setup.Fail("read the plan of", g.setup.Path, err)
}

// Map is a [Plan] that [Group.Watch] delivers.
type Map struct {
	Plan
	// Cause is the reason why the plan cannot be read: [recipes.ErrFormat], [recipes.ErrTooLarge] or
	// [recipes.ErrPermission]. Other Maps may follow. The Plan is zero.
	Cause error
	// Err is set only in the last element, and is the reason why the channel was closed.
	Err error
}

// Watch returns a channel that delivers the current plan and each later one, for routers and
// operators. It is closed, without an Err, after the context is done. A slow reader receives the
// newest plan. A plan says where to look for the owner of a shard, who may not have the shard yet:
// Moves contains the shards for which that is not confirmed. Watch sets one watch, whatever the number
// of shards. All calls over one connection share it.
func (g *Group) Watch(ctx context.Context) <-chan Map {
	maps := make(chan Map, 1)
	changes := g.plan.Watch(ctx)
	go func() {
		defer close(maps)
		for c := range changes {
			limit.SendNewest(maps, Map{Plan: c.Value, Cause: c.Cause, Err: c.Err})
		}
	}()
	return maps
}

// Ownership says who owns a shard.
type Ownership struct {
	// Member is the ID of the owner.
	Member string
	// Token is its fencing token, as [lock.Hold.Token] returns it to the owner.
	Token int64
}

// Owner returns the owner of a shard, according to the lock of the shard, or the zero Ownership
// without an owner. It sends one request to list the contenders and one for each of them. The result
// may be slightly out of date. Errors are those of [lock.Mutex.Contenders].
func (g *Group) Owner(ctx context.Context, shard string) (Ownership, error) {
	m, err := g.mutex(shard, "")
	if err != nil {
		return Ownership{}, fmt.Errorf("owner of shard %q: %w", shard, err)
	}
	contenders, err := m.Contenders(ctx)
	if err != nil {
		return Ownership{}, fmt.Errorf("owner of shard %q: %w", shard, err)
	}
	for _, c := range contenders {
		if c.Holds {
			return Ownership{c.Name, c.Token}, nil
		}
	}
	return Ownership{}, nil
}

// Run joins as the member with an ID, and calls f for each shard of the member while it owns the
// shard, each time in a new goroutine, until ctx is done. Then it leaves, and returns nil when all
// calls of f have returned and the shards are released. If another member has the ID, Run waits until
// it has left, which takes up to a session timeout if it has crashed. Run continues across sessions.
//
// The context of f ends when the shard is lost, or when its release is requested, also because ctx is
// done. Then its cause is a [*MovedError], and the shard is still held: f can save its state until the
// grace period ends ([WithGrace]), with [Shard.Context]. The shard is released when f returns.
//
// If f returns nil before its context is done, the shard remains with the member, which does nothing
// for it. If f returns an error before its context is done, the member leaves and Run returns the
// error. Later errors of f are ignored. f is not called again for a shard before the previous call for
// the same shard has returned.
//
// Other errors: [recipes.ErrInvalid], [recipes.ErrConnClosed], [recipes.ErrPermission]. If one shard
// cannot be locked, Run keeps the others, logs a warning and tries again.
func (g *Group) Run(ctx context.Context, id string, f func(ctx context.Context, s *Shard) error) error {
	if f == nil {
		return fmt.Errorf("%w: shard.Group.Run: the function is nil", recipes.ErrInvalid)
	}
	m, err := g.join(ctx, id, f)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	select {
	case <-ctx.Done():
		m.stop(recipes.ErrClosed)
	case <-m.drained:
	}
	<-m.drained
	if err := m.Close(); err != nil {
		g.setup.Log.Warn("the member may remain until its session ends", "member", id, "err", err)
	}
	if ctx.Err() != nil && errors.Is(m.reason, recipes.ErrClosed) {
		return nil
	}
	return m.reason
}

// Join joins as the member with an ID, and blocks until other clients can see the member. If another
// member has the ID, Join waits until it has left. [Member.Owned] delivers the shards. Errors: the
// cause of ctx, [recipes.ErrInvalid], [recipes.ErrConnClosed], [recipes.ErrPermission].
func (g *Group) Join(ctx context.Context, id string) (*Member, error) { return g.join(ctx, id, nil) }
