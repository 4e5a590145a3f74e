package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/internal/znode"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Group is a set of members, each of whom is there while its program is. It may be used
// by any number of goroutines; any number of Groups stand for the one at a path.
type Group struct {
	at *setup.Setup
	// joined says that somebody has joined by it: closing the connection changes the
	// group then.
	joined atomic.Bool
}

// Member is a member as ZooKeeper shows it. Two Members with the same Token and Revision
// are the same, with the same data.
type Member struct {
	ID   string
	Data []byte
	// Token is the creation zxid of the member's znode: a member that has been away and
	// has come back has a greater one.
	Token int64
	// Revision is the zxid of the last change of its data, Token at first.
	Revision int64
	// Session is the member's session.
	Session int64
	// Err is [recipes.ErrTooLarge] if the data are larger than the connection accepts.
	// Then Data is nil, and in kazoo's layout ID is the name of the member's znode.
	Err error
}

// NewGroup makes the group at path, whose znode is created with the first member. It
// sends no request. Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
// [recipes.ErrInvalidOption].
func NewGroup(conn *zk.Conn, path string, opts ...recipes.Option) (*Group, error) {
	s, err := setup.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	return &Group{at: s}, nil
}

// Membership is a member of a group that was joined here: its znode is kept in place, as
// a [Persistent] does it. It must be closed, which leaves the group.
type Membership struct {
	*Persistent
	id string
}

// Join joins the group as the member id, with data, and returns when others can see it.
// The id is to be this member's alone: while another has it, Join waits until that one
// is gone, as a member that has crashed is after its session timeout. When the context
// ends before, Join returns its cause, and nothing is left behind. Other errors:
// [recipes.ErrInvalidOption] for an id that is no name of a znode,
// [recipes.ErrConnClosed], [recipes.ErrPermission].
//
// With [recipes.Kazoo] the data of the znode are the id, any text, and there can be no
// others; ids need not differ.
func (g *Group) Join(ctx context.Context, id string, data []byte) (*Membership, error) {
	m, err := g.join(id, data)
	if err != nil {
		return nil, setup.Fail("join", g.at.Path, err)
	}
	if err := m.Await(ctx); err != nil {
		m.stop(ErrClosed)
		return nil, setup.Fail("join", g.at.Path, err)
	}
	return m, nil
}

// join begins to be a member.
func (g *Group) join(id string, data []byte) (*Membership, error) {
	s := *g.at
	switch {
	case g.at.Layout == recipes.Kazoo && data != nil:
		return nil, fmt.Errorf("%w: members have no data in kazoo's layout", recipes.ErrInvalidOption)
	case g.at.Layout == recipes.Kazoo:
		var guid [16]byte
		rand.Read(guid[:]) // never fails
		s.Path, data = path.Join(g.at.Path, hex.EncodeToString(guid[:])+kazooSuffix), []byte(id)
	default:
		s.Path = g.at.Path + "/" + id
		if id == "" || strings.Contains(id, "/") || znode.CheckPath(s.Path) != nil {
			return nil, fmt.Errorf("%w: id %q is no name of a znode", recipes.ErrInvalidOption, id)
		}
	}
	p, err := keep(&s, data)
	if err != nil {
		return nil, err
	}
	g.joined.Store(true)
	return &Membership{p, id}, nil
}

// kazooSuffix is how names of kazoo's Party end.
const kazooSuffix = "__party__"

// ID is the member's.
func (m *Membership) ID() string { return m.id }

// Set is [Persistent.Set]: the member's data from now on. In kazoo's layout it is
// [recipes.ErrInvalidOption].
func (m *Membership) Set(ctx context.Context, data []byte) error {
	if m.at.Layout == recipes.Kazoo {
		return fmt.Errorf("%w: members have no data in kazoo's layout", recipes.ErrInvalidOption)
	}
	return m.Persistent.Set(ctx, data)
}

// Members reads who is in the group, by id. It lists whom ZooKeeper has, not whom this
// program thinks to have joined. It sets no watch.
func (g *Group) Members(ctx context.Context) ([]Member, error) {
	r := reader{group: g, members: map[string]*seen{}}
	if err := r.list(ctx, false); err != nil {
		return nil, setup.Fail("read members of", g.at.Path, err)
	}
	return r.view(), nil
}

// View is who was in a group at a time.
type View struct {
	Members []Member // by id, then by Token
	// Err is nil but in the last element, where it says what has ended the channel:
	// [recipes.ErrConnClosed] or [recipes.ErrPermission].
	Err error
}

// Since compares with an earlier view: who has come, who has gone, and whose data have
// changed. A member that was away in between is both among those who have come and
// among those who have gone.
func (v View) Since(old View) (joined, gone, changed []Member) {
	for _, m := range v.Members {
		was := slices.IndexFunc(old.Members, func(o Member) bool { return o.Token == m.Token && o.ID == m.ID })
		switch {
		case was < 0:
			joined = append(joined, m)
		case old.Members[was].Revision != m.Revision:
			changed = append(changed, m)
		}
	}
	for _, o := range old.Members {
		if !slices.ContainsFunc(v.Members, func(m Member) bool { return o.Token == m.Token && o.ID == m.ID }) {
			gone = append(gone, o)
		}
	}
	return joined, gone, changed
}

// Changes delivers who is in the group now, and again whenever that or somebody's data
// have changed, until the context ends; then the channel is closed. A reader that is
// late gets the newest view, not those that it missed. While ZooKeeper does not answer
// there are no views; afterwards everything is read again.
//
// There is a watch on the group, and one on each member, which all calls over one
// connection share. The client library cannot remove them: after the end of the context
// each of them remains until the next change of its znode.
func (g *Group) Changes(ctx context.Context) <-chan View { return g.changes(ctx, false) }
